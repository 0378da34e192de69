//! ebbmalloc: a fast memory allocator for Linux and Windows that returns free memory to the
//! kernel. The features `macos`, `freebsd` and `android` switch it on there, untried.
//!
//! It builds on every target that has the standard library. Where the engine does not run, the
//! system's allocator serves ([`EbbMalloc::is_active`]).
//!
//! # For a whole program
//!
//! Two lines, without a C compiler or a build script:
//!
//! ```
//! #[global_allocator]
//! static GLOBAL: ebbmalloc::EbbMalloc = ebbmalloc::EbbMalloc;
//! # assert_eq!(vec![1; 100].len(), 100);
//! ```
//!
//! # Options
//!
//! Environment variables set options (`docs/options.md`). So does the program itself, by methods of
//! [`EbbMalloc`](struct@EbbMalloc):
//!
//! ```
//! use ebbmalloc::EbbMalloc;
//!
//! #[global_allocator]
//! static GLOBAL: EbbMalloc = EbbMalloc::new().limit_percent(75);
//! # assert!(EbbMalloc::stats().limit_bytes > 0);
//! ```
//!
//! # For a container
//!
//! [`Global`] implements `Allocator`, one trait for each of these features:
//!
//! - `allocator-api2`: the trait of the crate allocator-api2, which hashbrown, bump-scope and
//!   others take on any Rust. Use version 0.2, as hashbrown does (`cargo add allocator-api2@0.2`);
//!   later versions have other traits.
//! - `allocator-api`: the trait of the standard library, for `Vec`, `Box` and others, stable since
//!   Rust 1.100.
//! - `nightly`: on nightly Rust, the latter for maps and clones of `Arc` too.
//!
#![cfg_attr(feature = "allocator-api2", doc = "```")]
#![cfg_attr(not(feature = "allocator-api2"), doc = "```ignore (needs the feature allocator-api2)")]
//! use allocator_api2::boxed::Box;
//! use allocator_api2::vec::Vec;
//! use ebbmalloc::Global;
//!
//! let mut numbers = Vec::new_in(Global);
//! numbers.extend(0..100);
//! let boxed = Box::new_in(numbers.len(), Global);
//! assert_eq!(*boxed, 100);
//! ```
//!
//! # Heaps
//!
//! Dropping a [`Heap`] frees all its blocks at once, and a limit may bound it:
//!
#![cfg_attr(feature = "allocator-api2", doc = "```")]
#![cfg_attr(not(feature = "allocator-api2"), doc = "```ignore (needs the feature allocator-api2)")]
//! use allocator_api2::vec::Vec;
//! use ebbmalloc::Heap;
//!
//! let heap = Heap::with_limit(1 << 20);
//! let mut bytes = Vec::new_in(&heap);
//! bytes.resize(100_000, 1u8);
//! assert!(bytes.try_reserve(2 << 20).is_err());
//! ```
//!
//! # Statistics, and returning memory
//!
//! [`EbbMalloc::stats`] tells how memory is used. ebbmalloc returns free memory to the kernel by
//! itself. [`EbbMalloc::trim`] returns it at once, and [`EbbMalloc::idle`] is for event loops of
//! programs without threads.
//!
//! ```
//! use ebbmalloc::EbbMalloc;
//!
//! #[global_allocator]
//! static GLOBAL: EbbMalloc = EbbMalloc;
//!
//! drop(vec![1u8; 10 << 20]);
//! EbbMalloc::trim();
//! assert_eq!(EbbMalloc::stats().dirty_bytes, 0);
//! ```
//!
//! # Memory errors
//!
//! Safe Rust makes none. If `unsafe` code frees an address that is no block, or a block twice, and
//! ebbmalloc notices, it stops the program with one line. Release builds trust the size in a
//! `Layout`, debug builds check it.
//!
//! To find errors, run the program with `EBB_CHECK=1`; `EBB_SAMPLE` and `EBB_HARDEN` are for
//! production. All three need the feature `careful`, which is a default. Without it, setting them
//! prints a message and does nothing.
//!
//! # Size
//!
//! A program becomes larger on disk by some 380 KiB, or 170 KiB with `default-features = false`.
//! The default features are:
//!
//! - `careful`: `EBB_CHECK`, `EBB_SAMPLE` and `EBB_HARDEN`.
//! - `profile`: heap profiles, by `ebb profile`, `EBB_PROFILE` and the module `profile`.
//! - `stats`: the output of `EBB_STATS` and `EBB_EXPLAIN`.
//! - `inline`: with link-time optimization, copies of the fast paths wherever Rust code allocates
//!   or frees.
//!
//! # How it works
//!
//! The layers, lowest first. Each uses only earlier entries of this list; [architecture.md] says
//! more.
//!
//! [architecture.md]: https://github.com/ebbmalloc/ebbmalloc/blob/main/docs/architecture.md
//!
//! - `size_class`: the block sizes that exist.
//! - `tuning`: how each layer declares its constants of policy.
//! - `figures`: the statistics and heap profiles that programs read, and their formats.
//! - `options`: what environment variables and the program's code may set.
//! - `platform`: the operating system, atomics and locks, messages; it reads the options.
//! - `frontend`: the per-CPU and per-thread caches, and transfer caches between them.
//! - `backend`: the page heap: the region of addresses, runs and spans, and how much free memory
//!   stays resident, and how long (`retention`).
//! - `telemetry`: counters, and the purpose of each resident byte, in this process or another.
//! - `safety`: the state of check mode, harden mode and sampling.
//! - `central`: the central free list of each size class, and the records of heaps.
//! - `engine`: allocates and frees through all these layers, and returns memory.
//! - `this_process`: the engine of this process. Elsewhere `forward`: the system's allocator.
//! - `api`: the global allocator, [`Heap`], and the `Allocator` traits.
//! - `model`: copies of protocols between threads, which loom explores; in no other build.

#![no_std]
#![cfg_attr(feature = "nightly", feature(allocator_ext))]
#![warn(missing_docs)]
// The loom models use only a part of the lower layers.
#![cfg_attr(loom, allow(dead_code, unused_imports, unused_macros))]

#[cfg(any(test, loom))]
extern crate std;

/// Chooses one of two lists of items. (rustfmt knows this name, and looks into the lists.)
macro_rules! cfg_if {
    (if #[cfg($condition:meta)] { $($then:item)* } else { $($otherwise:item)* }) => {
        $(#[cfg($condition)] $then)*
        $(#[cfg(not($condition))] $otherwise)*
    };
}

// Lowest first: each uses only modules above it in this list. The engine needs 64-bit addresses,
// and no big-endian machine has run it yet. `--cfg ebbmalloc_forward` is for tests.
cfg_if! {
    if #[cfg(all(
        any(
            target_os = "linux",
            all(target_os = "macos", feature = "macos"),
            all(target_os = "freebsd", feature = "freebsd"),
            all(target_os = "android", feature = "android"),
            all(windows, target_arch = "x86_64")
        ),
        target_pointer_width = "64",
        target_endian = "little",
        not(ebbmalloc_forward)
    ))] {
        mod size_class;
        mod tuning;
        mod figures;
        mod options;
        mod platform;
        mod frontend;
        mod backend;
        mod telemetry;
        mod safety;
        mod central;
        #[cfg(not(loom))]
        mod engine;
        #[cfg(not(loom))]
        mod this_process;

        #[cfg(loom)]
        #[doc(hidden)]
        pub mod model;

        #[doc(hidden)]
        pub mod internals;
    } else {
        // The engine uses the rest of these.
        #[allow(dead_code)]
        mod size_class;
        #[allow(dead_code)]
        mod figures;
        #[allow(dead_code)]
        mod options;
        mod forward;
        use forward as this_process;
    }
}
#[cfg(not(loom))]
mod api;

#[cfg(not(loom))]
pub use api::global_alloc::{EbbMalloc, Global};
#[cfg(not(loom))]
pub use api::heap::Heap;
#[cfg(all(feature = "profile", not(loom)))]
pub use api::profile;
pub use figures::VERSION;
pub use figures::choice::Choice;
pub use figures::stats::{ClassStats, Stats};
pub use options::{
    HugeChoice, ModeChoice, OnPressure, OnRefusal, ProfileAtChoice, SetError, StatsChoice,
};
