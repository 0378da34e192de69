//! Hides the operating system behind a contract (`interface`), which `linux` implements.

// Lowest first: each uses only modules above it in this list.
mod hooks;
mod thread_pointer;
mod thread_variable;
mod threads;
mod sanitizer;
mod symtab;
mod recent;
mod stack;
mod roots;
mod interface;
mod mapping;
mod memory;
mod moving;
mod guard;
mod random;
mod release;
mod own_area;
mod rseq_area;
mod fork;
mod end;
mod faults;
mod signal;
mod background;
mod linux;

pub(crate) use crate::platform::kernel::bytes::{clear, copy};
pub use hooks::Hooks;
pub(crate) use interface::choose;
pub use interface::{
    Bell, Os, OsMemory, OsProcess, OsReports, OsThreads, Refusal, RseqArea, Usage, Writer,
};
pub use linux::{Linux, LinuxFor, Process};
#[cfg(all(test, not(any(miri, loom))))]
pub(crate) use own_area::own_area;
pub use roots::CLibrary;
pub use stack::{Symbol, unwinder_is_missing, use_unwinder};
pub(crate) use stack::{constructors_run, destructors_run};
pub use threads::ThreadWords;
