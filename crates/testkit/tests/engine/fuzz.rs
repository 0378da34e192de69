//! Runs the fuzz targets on random bytes, each for `EBB_FUZZ_SECONDS` seconds (3 if not set). A
//! failure prints its seed; `EBB_FUZZ_SEED` starts with that seed.

use std::env;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use ebbmalloc_testkit::fuzz;
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};

/// The parsed value of an environment variable, if it is set.
pub fn variable<T: FromStr>(name: &str) -> Option<T> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Random bytes from this seed.
fn bytes(seed: u64) -> Vec<u8> {
    let mut wide = [0; 32];
    wide[..8].copy_from_slice(&seed.to_le_bytes());
    let mut random = TestRng::from_seed(RngAlgorithm::ChaCha, &wide);
    let mut bytes = vec![0; 16 + random.next_u32() as usize % 3000];
    random.fill_bytes(&mut bytes);
    bytes
}

/// Prints the seed if its run panics.
struct Seed(u64, &'static str);

impl Drop for Seed {
    fn drop(&mut self) {
        if thread::panicking() {
            let Self(seed, test) = self;
            let command = "cargo test -p ebbmalloc-testkit --test engine fuzz::";
            eprintln!("to repeat it: EBB_FUZZ_SEED={seed} {command}{test}");
        }
    }
}

fn run(test: &'static str, target: fn(&[u8])) {
    let by_time = || SystemTime::UNIX_EPOCH.elapsed().expect("a clock").as_nanos() as u64;
    let first = variable("EBB_FUZZ_SEED").unwrap_or_else(by_time);
    let limit = Duration::from_secs(variable("EBB_FUZZ_SECONDS").unwrap_or(3));
    let (start, mut cases) = (Instant::now(), 0);
    while cases == 0 || start.elapsed() < limit {
        let seed = Seed(first.wrapping_add(cases), test);
        target(&bytes(seed.0));
        cases += 1;
    }
    println!("{test}: {cases} programs, from seed {first}");
}

#[test]
fn alternate() {
    run("alternate", fuzz::alternate);
}

#[test]
fn alternate_percpu() {
    run("alternate_percpu", fuzz::alternate_percpu);
}

#[test]
fn together() {
    run("together", fuzz::together);
}

#[test]
fn together_percpu() {
    run("together_percpu", fuzz::together_percpu);
}
