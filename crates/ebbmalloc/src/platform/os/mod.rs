//! Hides the operating system behind a contract (`interface`), which `memory`, `threads`, `process`
//! and `reports` implement for Linux, and those in `windows` for Windows.
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

cfg_if! {
    if #[cfg(target_os = "linux")] {
        mod thread_variable;
        mod words;
        mod symtab;
        pub(crate) mod unwind;
        mod stack;
        mod roots;
        mod limit;
        mod memory;
        mod own_area;
        mod release;
        mod rseq_area;
        mod threads;
        mod end;
        mod faults;
        mod signal;
        mod reports;
        mod process;

        #[cfg(all(test, not(any(miri, loom))))]
        pub(crate) use own_area::own_area;
        pub use process::note_environment;
        pub use stack::has_malloc_of_others;
        pub(crate) use stack::{constructors_run, destructors_run};
        #[cfg(loom)]
        pub use unwind::sequence_lock::SequenceLock;
    } else {
        mod windows;
    }
}

pub(crate) use crate::platform::kernel::bytes::{clear, copy};
pub use c_library::CLibrary;
pub use hooks::{Hooks, Process};
pub(crate) use interface::choose;
pub use interface::{
    Os, OsMemory, OsProcess, OsReports, OsThreads, Refusal, RseqArea, Usage, WakeFlag, Writer,
};
pub use native::{Native, NativeFor};
pub use symbol::Symbol;
pub use thread_words::ThreadWords;
