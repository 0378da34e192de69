//! A program for ebb's tests: allocates memory, and ends in different ways.
//!
//! `holder WAY MIB`

use std::os::unix::process::CommandExt;
use std::process::{Command, exit};
use std::time::Duration;
use std::{env, hint, thread};

fn take(mib: usize) -> Vec<u8> {
    hint::black_box(vec![1; mib << 20])
}

/// Allocates blocks of 512 bytes and frees all but every 100th.
#[expect(clippy::vec_box, reason = "a block each is the point")]
fn plant(mib: usize) -> Vec<Box<[u8; 512]>> {
    let block = |nth: usize| hint::black_box(Box::new([nth as u8 | 1; 512]));
    let blocks: Vec<_> = (0..mib << 11).map(block).collect();
    let kept = blocks.into_iter().enumerate().filter(|(nth, _)| nth % 100 == 0);
    let mut survivors = Vec::with_capacity(mib << 5);
    survivors.extend(kept.map(|(_, block)| block));
    survivors
}

/// Keeps a block of 64 KiB, and frees another at once, a hundred times a second and for `seconds`.
#[inline(never)]
fn grow(seconds: usize) {
    let mut kept = Vec::new();
    for nth in 0..seconds * 100 {
        kept.push(keep_one(nth));
        drop(use_one(nth));
        thread::sleep(Duration::from_millis(10));
    }
}

#[inline(never)]
fn keep_one(nth: usize) -> Vec<u8> {
    hint::black_box(vec![nth as u8 | 1; 64 << 10])
}

#[inline(never)]
fn use_one(nth: usize) -> Vec<u8> {
    hint::black_box(vec![nth as u8 | 1; 64 << 10])
}

/// Changes this process's beacon, so that a reader finds an endless heap, and endless slabs of
/// threads (`telemetry/beacon.rs`).
fn lie() {
    const COMMITTED_AT: usize = 10;
    const UNITS: usize = 16;
    const THREAD_SLABS_AT: usize = 18;
    static ENDLESS: usize = usize::MAX;
    static SLABS: [usize; 5] = [1 << 40, 1 << 50, 1 << 40, 4, 4];
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for line in maps.lines().filter(|line| line.contains(" rw-p ") && line.contains(" 00:00 0")) {
        let start = line.split('-').next().and_then(|start| usize::from_str_radix(start, 16).ok());
        let beacon = std::ptr::with_exposed_provenance_mut::<usize>(start.unwrap_or(0));
        // SAFETY: a writable mapping begins here. If it is a beacon's, the engine does not read it.
        unsafe {
            if !beacon.is_null() && beacon.read() == usize::from_ne_bytes(*b"ebbeacon") {
                beacon.add(COMMITTED_AT).write((&raw const ENDLESS).addr());
                beacon.add(UNITS).write(usize::MAX >> 17);
                beacon.add(THREAD_SLABS_AT).write((&raw const SLABS).addr());
            }
        }
    }
}

fn wait_for_input() {
    println!("ready");
    let _ = std::io::stdin().read_line(&mut String::new());
}

fn main() {
    let mut arguments = env::args().skip(1);
    let way = arguments.next().unwrap_or_default();
    let mib = arguments.next().and_then(|number| number.parse().ok()).unwrap_or(0);
    match way.as_str() {
        "keep" => {
            let _held = take(mib);
            exit(0)
        }
        "free" => drop(take(mib)),
        "free-after-a-second" => {
            let held = take(mib);
            thread::sleep(Duration::from_secs(1));
            drop(held);
        }
        "exit-from-thread" => {
            let _held = take(mib);
            let _ = thread::spawn(|| exit(0)).join();
        }
        "main-thread-leaves" => {
            thread::spawn(move || {
                // Allocate only once the main thread is gone: a measurement at its exit would miss
                // all of this.
                while !main_thread_is_gone() {
                    thread::yield_now();
                }
                let held = take(mib);
                thread::spawn(move || drop(take(1))).join().unwrap();
                std::mem::forget(held);
            });
            // SAFETY: no other thread uses this thread's stack.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        }
        "exec-from-thread" => {
            let _held = take(mib);
            let _ = thread::spawn(|| Command::new("true").exec()).join();
        }
        "pinned" => {
            let survivors = plant(mib);
            wait_for_input();
            drop(survivors);
        }
        "lie" => {
            lie();
            wait_for_input();
        }
        "grow" => {
            println!("ready");
            grow(mib);
        }
        "real-time-signals" => {
            // SAFETY: ignoring a signal and sending it to this process touch no memory.
            unsafe {
                libc::signal(libc::SIGRTMIN() + 3, libc::SIG_IGN);
                libc::raise(libc::SIGRTMIN() + 3);
                libc::signal(libc::SIGRTMIN() + 4, libc::SIG_DFL);
                libc::raise(libc::SIGRTMIN() + 4);
            }
        }
        other => {
            eprintln!("holder: no such way to end: {other}");
            exit(2)
        }
    }
}

fn main_thread_is_gone() -> bool {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z"))
}
