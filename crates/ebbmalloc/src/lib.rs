//! ebbmalloc: a fast memory allocator for Linux that returns free memory to the kernel.
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
//! [`EbbMalloc`]:
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
//! A program becomes larger on disk by up to 378 KiB, or 169 KiB with `default-features = false`.
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
//! - `platform`: the operating system, atomics and locks, options, messages.
//! - `frontend`: the per-CPU and per-thread caches, and transfer caches between them.
//! - `backend`: the page heap: the region of addresses, runs and spans, and how much free memory
//!   stays resident, and how long (`retention`).
//! - `telemetry`: counters, and the purpose of each resident byte, in this process or another.
//! - `safety`: the state of check mode, harden mode and sampling.
//! - `central`: the central free list of each size class, and the records of heaps.
//! - `engine`: allocates and frees through all these layers, and returns memory.
//! - `api`: the global allocator, [`Heap`], and the `Allocator` traits.
//! - `model`: copies of protocols between threads, which loom explores; in no other build.

#![no_std]
#![cfg_attr(feature = "nightly", feature(allocator_ext))]
#![warn(missing_docs)]
// The loom models use only a part of the lower layers.
#![cfg_attr(loom, allow(dead_code, unused_imports, unused_macros))]

// The region needs 64-bit addresses. No big-endian machine has run this code yet.
#[cfg(all(target_os = "linux", not(all(target_pointer_width = "64", target_endian = "little"))))]
compile_error!(
    "ebbmalloc supports 64-bit little-endian machines only so far; make it a dependency of those \
     targets only, [target.'cfg(all(target_pointer_width = \"64\", \
     target_endian = \"little\"))'.dependencies], and keep the system allocator elsewhere"
);

#[cfg(not(target_os = "linux"))]
compile_error!(
    "ebbmalloc supports Linux only so far; make it a dependency of Linux targets only, \
     [target.'cfg(target_os = \"linux\")'.dependencies], and keep the system allocator elsewhere"
);

// Ends compilation here: a hundred more errors would follow, and users read the last one.
#[cfg(not(all(target_os = "linux", target_pointer_width = "64", target_endian = "little")))]
macro_rules! see_the_error_above {
    () => {
        see_the_error_above!();
    };
}
#[cfg(not(all(target_os = "linux", target_pointer_width = "64", target_endian = "little")))]
see_the_error_above!();

#[cfg(any(test, loom))]
extern crate std;

// Lowest first: each uses only modules above it in this list.
mod size_class;
mod tuning;
mod platform;
mod frontend;
mod backend;
mod telemetry;
mod safety;
mod central;
#[cfg(not(loom))]
mod engine;
#[cfg(not(loom))]
mod api;

#[cfg(loom)]
#[doc(hidden)]
pub mod model;

#[cfg(not(loom))]
pub use api::global_alloc::{EbbMalloc, Global};
#[cfg(not(loom))]
pub use api::heap::Heap;
#[cfg(all(feature = "profile", not(loom)))]
pub use api::profile;
#[cfg(not(loom))]
pub use engine::calls::{OnPressure, OnRefusal};
#[cfg(not(loom))]
pub use engine::mode::Choice;
#[cfg(not(loom))]
pub use engine::report::stats::{ClassStats, Stats};
pub use platform::VERSION;
pub use platform::options::read::SetError;
pub use platform::options::{HugeChoice, ModeChoice, ProfileAtChoice, StatsChoice};

/// Items for the other crates of this repository: the C library, the command, tests.
///
/// They are outside of semantic versioning: any release may change them.
#[doc(hidden)]
pub mod internals {
    #[cfg(not(loom))]
    pub use crate::api::global_alloc::ENGINE;
    #[cfg(not(loom))]
    pub use crate::central::heap_record::HeapId;
    #[cfg(not(loom))]
    pub use crate::engine::Engine;
    #[cfg(not(loom))]
    pub use crate::engine::report::why::Conclusion;
    pub use crate::platform::options::{
        CheckChoice, ExplainChoice, HardenChoice, LimitChoice, Options, PathChoice, ProfileChoice,
        SampleChoice, ScavengerChoice,
    };
    pub use crate::platform::os::{
        Bell, CLibrary, Hooks, Linux, LinuxFor, Os, OsMemory, OsProcess, OsReports, OsThreads,
        Process, Refusal, RseqArea, Symbol, ThreadWords, Usage, Writer, unwinder_is_missing,
        use_unwinder,
    };
    pub use crate::size_class::{MIN_ALIGN, SMALL_MAX, UNIT, class_bytes};
    #[cfg(not(loom))]
    pub use crate::telemetry::beacon::{Beacon, OtherVersion};
    #[cfg(not(loom))]
    pub use crate::telemetry::ledger::{ClassLedger, Ledger, Part};
    #[cfg(not(loom))]
    pub use crate::telemetry::profile_walk::{Counts, ProfileHeader, ProfileSamples, ProfileStack};
    #[cfg(not(loom))]
    pub use crate::telemetry::remote_ledger::Memory;
    pub use crate::tuning::Tunable;

    /// The constants of policy, by layer, lowest first.
    #[cfg(not(loom))]
    pub const TUNABLES: [(&str, &[Tunable]); 6] = [
        ("Front end", crate::frontend::tuning::ALL),
        ("Back end", crate::backend::tuning::ALL),
        ("Telemetry", crate::telemetry::tuning::ALL),
        ("Safety", crate::safety::tuning::ALL),
        ("Central free lists", crate::central::tuning::ALL),
        ("Engine", crate::engine::tuning::ALL),
    ];
    #[cfg(not(loom))]
    pub use crate::telemetry::remote_profile::{RemoteProfile, WritableMemory};
    /// The most calls kept of a stack. See `docs/tuning.md`.
    pub const PROFILE_CALLS_MAX: usize = crate::telemetry::tuning::PROFILE_CALLS_MAX;
    /// The usual mean number of bytes between samples. See `docs/tuning.md`.
    pub const PROFILE_MEAN_BYTES: u64 = crate::telemetry::tuning::PROFILE_MEAN_BYTES;
}
