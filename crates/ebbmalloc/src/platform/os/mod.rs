//! Hides the operating system behind a contract (`interface`), which four files implement for
//! Linux.

// Lowest first: each uses only modules above it in this list.
mod linux;
mod thread_variable;
mod words;
mod symtab;
pub(crate) mod unwind;
mod stack;
mod roots;
mod interface;
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

pub(crate) use crate::platform::kernel::bytes::{clear, copy};
pub(crate) use interface::choose;
pub use interface::{
    Os, OsMemory, OsProcess, OsReports, OsThreads, Refusal, RseqArea, Usage, WakeFlag, Writer,
};
pub use linux::{Hooks, Linux, LinuxFor, Process};
#[cfg(all(test, not(any(miri, loom))))]
pub(crate) use own_area::own_area;
pub use process::note_environment;
pub use roots::CLibrary;
pub use stack::{Symbol, has_malloc_of_others};
pub(crate) use stack::{constructors_run, destructors_run};
#[cfg(loom)]
pub use unwind::sequence_lock::SequenceLock;
pub use words::ThreadWords;
