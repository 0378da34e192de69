//! Stopping the threads of this process by membarrier(2), which tests may do: under a filter of system calls they
//! would not run.

use core::ffi::c_int;

const PRIVATE_EXPEDITED: c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: c_int = 1 << 4;
const PRIVATE_EXPEDITED_RSEQ: c_int = 1 << 7;
const REGISTER_PRIVATE_EXPEDITED_RSEQ: c_int = 1 << 8;

/// Has all threads that run pass a barrier, as the others have since they ran: Linux 4.14 and later.
pub(crate) fn pass() -> bool {
    all([REGISTER_PRIVATE_EXPEDITED, PRIVATE_EXPEDITED])
}

/// Starts over all restartable sequences in progress: Linux 5.10 and later.
pub(crate) fn restart_sequences() -> bool {
    all([REGISTER_PRIVATE_EXPEDITED_RSEQ, PRIVATE_EXPEDITED_RSEQ])
}

/// True if all of these are done. A command that registers costs nothing the second time.
fn all(commands: [c_int; 2]) -> bool {
    // SAFETY: touches no memory.
    commands
        .iter()
        .all(|&command| unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 })
}
