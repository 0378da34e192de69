//! The engine on the fake operating system, and random programs on the real one: all in one binary, since each
//! would compile the whole engine for itself. Apart are those that watch or disturb their process as a whole
//! (`interrupts`, `ledger`, `moving`), or that other tools run (`loom`, `miri`).
#![cfg(not(any(miri, loom)))]

mod addresses;
mod audit;
mod check;
mod fuzz;
mod growth;
mod harden;
mod heaps;
mod limit;
mod misuse;
mod model;
mod oom;
mod purge;
mod room;
mod sample;
mod sizes;
mod spans;
mod streak;
mod threads;
mod transfer;
mod watch;
