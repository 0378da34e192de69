//! Grows vectors element by element: nearly all calls of the allocator are `realloc`.
//!
//! Modelled on the programs that the allocator elfmalloc was measured with.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use allocator_api2::vec::Vec as VecIn;
use anyhow::{Context, Result, ensure};
use built_in::{Chosen, Through};
use clap::{Parser, ValueEnum};
use serde_json::json;

#[global_allocator]
static GLOBAL: Chosen = Chosen;

#[derive(Parser)]
#[command(about = "Grows vectors, one push at a time")]
struct Cli {
    growth: Growth,
    /// The vectors' way to get memory
    #[arg(long, value_enum)]
    vec: Kind,
    /// Threads that do the same at the same time
    #[arg(long)]
    threads: usize,
    /// Number of times that each thread does it
    #[arg(long)]
    times: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum Growth {
    /// 8 times: 500 numbers
    Small,
    /// 500,000 numbers onto 16,384
    Large,
    /// 1,000 arrays of 8 KiB
    Arrays,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// The standard library's, from the global allocator
    Global,
    /// allocator-api2's, generic over the allocator
    Generic,
}

/// The common interface of both kinds of vector.
trait Grow<T> {
    fn push(&mut self, value: T);
    fn as_slice(&self) -> &[T];
}

impl<T> Grow<T> for Vec<T> {
    fn push(&mut self, value: T) {
        self.push(value);
    }
    fn as_slice(&self) -> &[T] {
        self
    }
}

impl<T> Grow<T> for VecIn<T, Through<&'static Chosen>> {
    fn push(&mut self, value: T) {
        self.push(value);
    }
    fn as_slice(&self) -> &[T] {
        self
    }
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let ready = Barrier::new(cli.threads);
    let work = || {
        ready.wait();
        let begin = Instant::now();
        let right = (0..cli.times).all(|_| grow(cli.growth, cli.vec));
        (right, begin, Instant::now())
    };
    let ends: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..cli.threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let right = ends.iter().all(|&(right, ..)| right);
    // The time from the first thread's begin to the last one's end.
    let begin = ends.iter().map(|&(_, begin, _)| begin).min().context("--threads")?;
    let end = ends.iter().map(|&(.., end)| end).max().context("--threads")?;
    ensure!(right, "a vector does not hold what was pushed");
    println!("{}", json!({ "time_s": (end - begin).as_secs_f64() }));
    Ok(())
}

/// Grows a vector of each size once; returns whether it holds what was pushed.
fn grow(growth: Growth, kind: Kind) -> bool {
    let through = Through(&GLOBAL);
    match (growth, kind) {
        (Growth::Small, Kind::Global) => (0..8).all(|_| numbers(Vec::new(), 500)),
        (Growth::Small, Kind::Generic) => (0..8).all(|_| numbers(VecIn::new_in(through), 500)),
        (Growth::Large, Kind::Global) => numbers(vec![1; 16 << 10], 500_000),
        (Growth::Large, Kind::Generic) => {
            let mut some = VecIn::new_in(through);
            some.resize(16 << 10, 1);
            numbers(some, 500_000)
        }
        (Growth::Arrays, Kind::Global) => arrays(Vec::new(), 1000),
        (Growth::Arrays, Kind::Generic) => arrays(VecIn::new_in(through), 1000),
    }
}

fn numbers(mut vec: impl Grow<usize>, count: usize) -> bool {
    let before = vec.as_slice().len();
    for number in 0..count {
        black_box(&mut vec).push(number);
    }
    let pushed = &vec.as_slice()[before..];
    pushed.len() == count && pushed[count / 2] == count / 2 && pushed[count - 1] == count - 1
}

fn arrays(mut vec: impl Grow<[usize; 1024]>, count: usize) -> bool {
    for number in 0..count {
        black_box(&mut vec).push([number; 1024]);
    }
    let pushed = vec.as_slice();
    pushed.len() == count && (0..count).all(|at| pushed[at][0] == at && pushed[at][1023] == at)
}
