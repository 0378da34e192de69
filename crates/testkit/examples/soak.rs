//! Runs a mixed load in cycles, with a rest after each: `soak SECONDS`. Threads come and go, hand
//! blocks to each other, and leave nothing behind. Exits with 1 if more memory is resident after
//! the last cycle than after the first ones.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use std::{env, fs, hint, thread};

use ebbmalloc::EbbMalloc;
use ebbmalloc_testkit::{Op, Program};

#[global_allocator]
static GLOBAL: EbbMalloc = EbbMalloc;

const THREADS: u64 = 4;
/// The cycles after which memory must have reached its steady state.
const FIRST: usize = 2;
/// The time in which the scavenger finds the process idle.
const REST: Duration = Duration::from_secs(4);
/// How many KiB memory may differ between cycles: pages that stay with caches and spans.
const SLACK: u64 = 4 << 10;

static OPERATIONS: AtomicU64 = AtomicU64::new(0);

/// A field of /proc/self/status, in KiB.
fn status(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").expect("a /proc");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("such a line");
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse().expect("a number")
}

/// Works like a program with maps, strings, growing buffers and messages.
fn work(seed: u64, until: Instant, next: Sender<Vec<u8>>, inbox: Receiver<Vec<u8>>) {
    let mut names: HashMap<u64, String> = HashMap::new();
    let mut buffers: Vec<Vec<u8>> = Vec::new();
    for (nth, op) in Program::new(seed).enumerate() {
        match op {
            Op::Alloc { size, .. } => buffers.push(vec![1; size]),
            Op::AllocZeroed { size } => buffers.push(hint::black_box(vec![0; size])),
            Op::Realloc { nth, size } if !buffers.is_empty() => {
                let nth = nth % buffers.len();
                buffers[nth].resize(size, 2);
                buffers[nth].shrink_to_fit();
            }
            Op::HandOver { .. } => {
                // The receiver may have ended; then the buffer is freed here.
                buffers.pop().map(|buffer| next.send(buffer));
            }
            Op::UsableSize { nth } => {
                names.insert(nth as u64 % 5000, format!("name {nth} of {seed}"));
            }
            Op::Free { nth } | Op::FreeSized { nth } if !buffers.is_empty() => {
                buffers.swap_remove(nth % buffers.len());
            }
            _ => {}
        }
        buffers.extend(inbox.try_iter());
        // Small buffers grow in number, and all are freed now and then.
        buffers.truncate(4000);
        if nth % 100_000 == 99_999 {
            buffers.clear();
            names.clear();
        }
        if nth % 1000 == 999 {
            OPERATIONS.fetch_add(1000, Relaxed);
            thread::spawn(move || hint::black_box(vec![seed; 1000])).join().expect("it ends");
            if Instant::now() >= until {
                return;
            }
        }
    }
}

fn cycle(number: u64, length: Duration) {
    let until = Instant::now() + length;
    let (mut senders, mut receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| channel()).unzip();
    senders.rotate_left(1);
    thread::scope(|scope| {
        for (own, (next, inbox)) in senders.into_iter().zip(receivers.drain(..)).enumerate() {
            scope.spawn(move || work(number * THREADS + own as u64, until, next, inbox));
        }
    });
}

fn main() -> ExitCode {
    let seconds = env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(60);
    let (start, all) = (Instant::now(), Duration::from_secs(seconds));
    let length = (all / 20).clamp(Duration::from_secs(2), Duration::from_secs(60));
    let mut rests: Vec<u64> = Vec::new();
    while rests.len() <= FIRST || start.elapsed() + length + REST < all {
        cycle(rests.len() as u64, length);
        let full = status("VmRSS:");
        thread::sleep(REST);
        rests.push(status("VmRSS:"));
        let (at, operations) = (start.elapsed().as_secs(), OPERATIONS.load(Relaxed) / 1_000_000);
        let rest = rests[rests.len() - 1];
        println!("{at:5} s: {operations} million operations, {full} KiB at work, {rest} at rest");
    }
    let (first, last) = (*rests[..FIRST].iter().max().expect("some"), rests[rests.len() - 1]);
    println!("at rest: {first} KiB in the beginning, {last} in the end");
    if last > first + SLACK {
        eprintln!("memory has grown");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
