//! Prints, to readers that may leave at any time.

use std::fmt;
use std::io::{self, ErrorKind, Write};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::stop::Stop;

/// Prints to standard output. If its reader is gone (`ebb … | head`), the error ends `ebb` without
/// a message.
pub fn print(text: impl fmt::Display) -> anyhow::Result<()> {
    // One piece: a pipe's reader then gets whole lines.
    let text = text.to_string();
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).map_err(refused)
}

/// Prints a line to standard output, as [`print`] does.
pub fn print_line(text: impl fmt::Display) -> anyhow::Result<()> {
    print(format_args!("{text}\n"))
}

/// Whether the reader of standard output is gone. Only a pipe tells.
pub fn is_closed() -> bool {
    let output = io::stdout();
    let mut polled = [PollFd::new(&output, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&at_once)).is_ok() && polled[0].revents().contains(PollFlags::ERR)
}

/// Prints a line to standard error. Nothing can be said about its failure.
pub fn remark(text: impl fmt::Display) {
    let _ = io::stderr().write_all(format!("ebb: {text}\n").as_bytes());
}

/// The error for standard output that takes no more.
pub fn refused(error: io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::BrokenPipe => Stop::silent(),
        _ => Stop::with(1, format!("cannot write to standard output ({error})")),
    }
}
