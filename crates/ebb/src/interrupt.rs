//! Ctrl-C and its relatives: end the measured program at once, then `ebb` itself.

use std::io;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::low_level;

/// The signal that asked `ebb` to end, or 0.
static ASKED: AtomicI32 = AtomicI32::new(0);
/// The program under measurement, or 0.
static CHILD: AtomicI32 = AtomicI32::new(0);

/// From here on a request to end is noted, and ends the watched program.
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

/// Names the program to end on a request; one that came before is honoured too.
pub fn watch(pid: libc::pid_t) {
    CHILD.store(pid, SeqCst);
    if asked().is_some() {
        kill_child();
    }
}

/// To be called once the program has been reaped: its process id may belong to another soon.
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
        // SAFETY: a plain system call; the process is ours and not yet reaped.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
}
