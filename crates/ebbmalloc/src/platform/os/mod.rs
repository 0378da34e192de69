//! Hides the operating system behind a contract (`interface`), which `memory`, `threads`, `process`
//! and `reports` implement for Linux, those in `windows` for Windows, and those in `posix` for
//! other systems.
//!
//! Nothing here needs the C library to be initialised: the dynamic loader may ask for the first
//! block before any constructor has run.

// Lowest first: each uses only modules above it in this list.
mod hooks;
mod native;
mod thread_words;
mod symbol;
mod c_library;
mod interface;
#[cfg(unix)]
#[cfg_attr(any(not(target_os = "linux"), ebbmalloc_posix), path = "posix/end.rs")]
mod end;
#[cfg(unix)]
mod faults;
#[cfg(unix)]
mod signal;

cfg_if! {
    if #[cfg(all(target_os = "linux", not(ebbmalloc_posix)))] {
        mod thread_variable;
        mod without_c_library;
        mod words;
        mod symtab;
        mod dlsym;
        pub(crate) mod unwind;
        mod stack;
        mod roots;
        mod limit;
        mod memory;
        mod own_area;
        mod release;
        mod stay;
        mod rseq_area;
        mod threads;
        mod reports;
        mod process;

        pub use dlsym::next_function;
        #[cfg(all(test, not(any(miri, loom))))]
        pub(crate) use own_area::own_area;
        pub use process::note_environment;
        pub use stack::has_malloc_of_others;
        pub(crate) use stack::{constructors_run, destructors_run};
        pub(crate) use stay::stay_loaded;
        #[cfg(loom)]
        pub use unwind::sequence_lock::SequenceLock;
    } else {
        #[cfg(windows)]
        mod windows;
        #[cfg(unix)]
        mod posix;

        #[cfg(unix)]
        pub(crate) use posix::stay_loaded;
    }
}

#[cfg(all(test, not(loom)))]
mod contract;

pub(crate) use crate::platform::kernel::bytes::{clear, clear_sparse, copy};
pub use c_library::CLibrary;
pub use hooks::{Hooks, Process};
pub(crate) use interface::choose;
pub use interface::{
    NotMoved, Os, OsMemory, OsProcess, OsReports, OsThreads, Refusal, RseqArea, Usage, WakeFlag,
    Writer,
};
pub use native::{Native, NativeFor};
pub use symbol::Symbol;
pub use thread_words::ThreadWords;
