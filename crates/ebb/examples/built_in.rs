//! A program for ebb's tests that has ebbmalloc built in: allocates memory, prints `ready`, and
//! waits for input.

use std::hint;

#[global_allocator]
static GLOBAL: ebbmalloc::EbbMalloc = ebbmalloc::EbbMalloc;

fn main() {
    let held: Vec<_> = (1..=10_000u64).map(|nth| hint::black_box(Box::new([nth; 200]))).collect();
    println!("ready");
    let _ = std::io::stdin().read_line(&mut String::new());
    drop(held);
}
