//! The tests of the engine on the fake operating system, and of random programs on the real one, in
//! one binary: each binary would compile the whole engine again. Separate are tests that watch or
//! disturb their whole process (`interrupts`, `ledger`, `moving`), or that other tools run (`loom`,
//! `miri`).
#![cfg(not(any(miri, loom)))]

mod addresses;
mod audit;
mod capacity;
mod check;
mod fuzz;
mod growth;
mod harden;
mod heaps;
mod huge;
mod limit;
mod medium;
mod misuse;
mod model;
mod near;
mod oom;
mod options;
mod packing;
mod profile;
mod purge;
mod races;
mod sample;
mod sizes;
mod spans;
mod streak;
mod threads;
mod transfer;
mod watch;
