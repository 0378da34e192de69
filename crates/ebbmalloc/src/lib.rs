//! ebbmalloc: a memory allocator that is fast as the fastest, with memory that ebbs back.
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
//! # For a container
//!
//! [`EbbMalloc`] is an `Allocator` too. With the feature `allocator-api2` that of the crate of this name, which
//! hashbrown, bump-scope and others take on any Rust; its version is 0.2, as hashbrown's is: `cargo add allocator-api2@0.2`.
//! Later ones have traits of their own. With `allocator-api` that of the standard library, for `Vec`, `Box` and others, which
//! is stable since Rust 1.100; and with `nightly`, on nightly Rust, for maps and clones of `Arc` too.
//!
#![cfg_attr(feature = "allocator-api2", doc = "```")]
#![cfg_attr(not(feature = "allocator-api2"), doc = "```ignore (needs the feature allocator-api2)")]
//! use allocator_api2::boxed::Box;
//! use allocator_api2::vec::Vec;
//! use ebbmalloc::EbbMalloc;
//!
//! let mut numbers = Vec::new_in(EbbMalloc);
//! numbers.extend(0..100);
//! let boxed = Box::new_in(numbers.len(), EbbMalloc);
//! assert_eq!(*boxed, 100);
//! ```
//!
//! # Heaps
//!
//! What is allocated from a [`Heap`] goes with it, all at once, and a limit may bound it:
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
//! # What is where, and giving back
//!
//! [`EbbMalloc::stats`] says where memory is. Free memory goes back to the kernel by itself; [`EbbMalloc::trim`]
//! does it at once, and [`EbbMalloc::idle`] is for event loops of programs without threads.
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
//! # Mistakes
//!
//! Safe Rust makes none. Where `unsafe` code frees what is no block, or frees a block twice, the program is stopped with one
//! line where that is seen. The size in a `Layout` is trusted in release builds only. To find mistakes, run the program with
//! `EBB_CHECK=1`; `EBB_SAMPLE` and `EBB_HARDEN` are for production. These three are the feature `careful`, a default: without it
//! the variables are ignored with a message.
//!
//! # Size
//!
//! Programs are larger on disk by some 200 KiB, by 100 with `default-features = false`. That leaves `careful` out; `stats`, which is what `EBB_STATS` and
//! `EBB_EXPLAIN` print; and `inline`: with link-time optimization the fast paths of allocating and freeing are copied to wherever Rust code does either.
//!
//! # How it works
//!
//! The engine below is layered; each layer uses only those above it in this list of its files
//! (`docs/architecture.md` says more):
//!
//! - `os`, `sync`, `text`, `demangle`: the platform, locks, messages, names of functions
//! - `size_class`: which sizes there are
//! - `streak`: caches that miss the same way again and again
//! - `cache`, `rseq`: the cache of a virtual CPU, and what restartable sequences do with it
//! - `thread_slabs`: the caches of threads
//! - `holes`, `run`, `span`: which pages are not there; records of a run, and of one that is cut
//!   into blocks
//! - `region`: addresses and tables
//! - `beacon`, `ledger`, `remote`: what memory is there for, of this process or of another
//! - `pressure`, `patience`, `retention`: how much free memory stays; how much less where it gets short, and more where
//!   it is soon wanted back
//! - `zeroing`: zeros for large blocks
//! - `run_tree`, `guards`, `pages`: runs of units, and pages out of reach
//! - `central`: the spans of one size class
//! - `chunks`: memory apart from all blocks
//! - `seal`, `quarantine`: what stands behind a block's end, and where it waits once it is freed, with `EBB_HARDEN`
//! - `heap_record`: heaps that programs make
//! - `check_table`: what check mode knows of each block
//! - `sample_table`: sampled blocks
//! - `front`: which cache a thread uses
//! - `transfer`: caches between these, for where many CPUs are at the spans of one class
//! - `scavenger`: when memory is given back that nobody needs
//! - `engine`, `mode`, `slabs`, `backtrace`, `sample`, `large`, `refill`, `flush`, `drain`, `heaps`, `care`, `check`, `harden`,
//!   `scavenge`, `blocks`, `stats`, `why`: all of it together
//! - `audit`: every invariant of it, for tests
//! - `global`, `heap`: the engine of this process, and heaps in it
//! - `per_container`, `allocator_api2`, `allocator_api`: the `Allocator` traits

#![no_std]
#![cfg_attr(feature = "nightly", feature(allocator_ext))]
#![warn(missing_docs)]
// The models use only a part of the lower layers.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

// Address ranges here take 64 bits, and no big-endian machine has run this yet.
#[cfg(all(target_os = "linux", not(all(target_pointer_width = "64", target_endian = "little"))))]
compile_error!(
    "ebbmalloc supports 64-bit little-endian machines only so far; make it a dependency of those targets \
     only, [target.'cfg(all(target_pointer_width = \"64\", target_endian = \"little\"))'.dependencies], \
     and keep the system allocator elsewhere"
);

#[cfg(not(target_os = "linux"))]
compile_error!(
    "ebbmalloc supports Linux only so far; make it a dependency of Linux targets only, \
     [target.'cfg(target_os = \"linux\")'.dependencies], and keep the system allocator elsewhere"
);

// The compiler would go on to a hundred more errors, the last of which is all that is read: end it here.
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
pub use api::global_alloc::EbbMalloc;
#[cfg(not(loom))]
pub use api::heap::Heap;
#[cfg(not(loom))]
pub use engine::mode::Choice;
#[cfg(not(loom))]
pub use engine::report::stats::{ClassStats, Stats};
pub use platform::VERSION;

/// What the other crates of this repository need: the C library, the command, tests. Outside semantic versioning: any of it
/// may change with any release.
#[doc(hidden)]
pub mod internals {
    #[cfg(not(loom))]
    pub use crate::api::global_alloc::ENGINE;
    #[cfg(not(loom))]
    pub use crate::api::tuning_table::document_tuning;
    #[cfg(not(loom))]
    pub use crate::central::heap_record::HeapId;
    #[cfg(not(loom))]
    pub use crate::engine::Engine;
    #[cfg(not(loom))]
    pub use crate::engine::report::why::Conclusion;
    pub use crate::platform::options::{
        CheckChoice, ExplainChoice, HardenChoice, LimitChoice, ModeChoice, Options, SampleChoice,
        ScavengerChoice, StatsChoice,
    };
    pub use crate::platform::os::{
        Bell, CLibrary, Hooks, Linux, LinuxFor, Os, OsMemory, OsProcess, OsReports, OsThreads,
        Process, Refusal, RseqArea, Symbol, ThreadWords, Usage, unwinder_is_missing, use_unwinder,
    };
    pub use crate::size_class::{MIN_ALIGN, SMALL_MAX, class_bytes};
    #[cfg(not(loom))]
    pub use crate::telemetry::beacon::{Beacon, OtherVersion};
    #[cfg(not(loom))]
    pub use crate::telemetry::ledger::{ClassLedger, Ledger, Part};
    #[cfg(not(loom))]
    pub use crate::telemetry::remote_ledger::Memory;
}
