//! Handles Ctrl-C and other requests to end: kills the measured program at once, then ends `ebb`.

use std::io;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::low_level;

/// The signal that asked `ebb` to end, or 0.
static ASKED: AtomicI32 = AtomicI32::new(0);
/// The program under measurement, or 0.
static CHILD: AtomicI32 = AtomicI32::new(0);

/// Installs the handlers: from here on a request to end is recorded and kills the watched program.
pub fn install() -> io::Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
        // SAFETY: the action only touches atomics and calls kill, both allowed in a signal handler.
        unsafe {
            low_level::register(signal, move || {
                ASKED.store(signal, SeqCst);
                kill_child();
            })
        }?;
    }
    Ok(())
}

/// Names the program to kill on a request; an earlier request kills it at once.
pub fn watch(pid: libc::pid_t) {
    CHILD.store(pid, SeqCst);
    if asked().is_some() {
        kill_child();
    }
}

/// Forgets the program. To be called once it has been reaped: its process id may soon belong to
/// another process.
pub fn unwatch() {
    CHILD.store(0, SeqCst);
}

/// The signal that asked `ebb` to end, if one did.
pub fn asked() -> Option<i32> {
    Some(ASKED.load(SeqCst)).filter(|&signal| signal != 0)
}

fn kill_child() {
    let pid = CHILD.load(SeqCst);
    if pid > 0 {
        // SAFETY: a system call that accesses no memory; the child is not reaped yet, so the id is
        // its own.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
}
