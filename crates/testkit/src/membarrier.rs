//! Makes all threads of this process pass a barrier, by membarrier(2). Tests may call it: they do
//! not run under a filter of system calls.

use core::ffi::c_int;

const PRIVATE_EXPEDITED: c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: c_int = 1 << 4;
const PRIVATE_EXPEDITED_RSEQ: c_int = 1 << 7;
const REGISTER_PRIVATE_EXPEDITED_RSEQ: c_int = 1 << 8;

/// Makes all running threads pass a barrier; the others have passed one since they ran. Needs Linux
/// 4.14.
pub(crate) fn pass() -> bool {
    all([REGISTER_PRIVATE_EXPEDITED, PRIVATE_EXPEDITED])
}

/// Restarts all restartable sequences in progress. Needs Linux 5.10.
pub(crate) fn restart_sequences() -> bool {
    all([REGISTER_PRIVATE_EXPEDITED_RSEQ, PRIVATE_EXPEDITED_RSEQ])
}

/// Performs the commands. True if all succeed. A repeated registration costs nothing.
fn all(commands: [c_int; 2]) -> bool {
    // SAFETY: the system call accesses no memory of the process.
    commands
        .iter()
        .all(|&command| unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 })
}
