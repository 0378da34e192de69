//! Prints milliseconds of the fastest of three rounds, then peak resident and virtual memory in
//! KiB.

use std::hint::black_box;
use std::time::Instant;

#[global_allocator]
static GLOBAL: ebbmalloc::EbbMalloc = ebbmalloc::EbbMalloc;

fn main() {
    let text = words::sample(300_000);
    let round = || {
        let start = Instant::now();
        black_box(words::followers(black_box(&text)));
        start.elapsed().as_secs_f64() * 1e3
    };
    let best = (0..3).map(|_| round()).fold(f64::INFINITY, f64::min);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap_or("? 0");
        line.split_whitespace().nth(1).unwrap_or("0").to_string()
    };
    println!("{best:.1} {} {}", peak("VmHWM:"), peak("VmPeak:"));
}
