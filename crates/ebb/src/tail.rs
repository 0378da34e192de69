//! Keeps the last lines that a program wrote to its standard error.

use std::collections::VecDeque;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, poll};

/// The bytes kept of the end.
const KEPT: usize = 16 * 1024;
/// The most bytes that a pipe holds by default: those left to read when the program has ended.
const PIPE: usize = 64 * 1024;

/// A pipe that is read continuously, so that its writer never waits for long.
pub struct Tail {
    thread: JoinHandle<VecDeque<u8>>,
    stop: PipeWriter,
}

impl Tail {
    /// Starts to read; the program gets the writing end.
    pub fn start() -> io::Result<(Self, PipeWriter)> {
        let (source, target) = io::pipe()?;
        let (stopped, stop) = io::pipe()?;
        let thread =
            thread::Builder::new().name("stderr".into()).spawn(move || read(source, &stopped))?;
        Ok((Self { thread, stop }, target))
    }

    /// The end of the program's output. A process left behind by the program may hold the pipe
    /// open, so this does not wait for the pipe's end.
    pub fn finish(self) -> Vec<u8> {
        drop(self.stop);
        self.thread.join().map_or_else(|_| Vec::new(), Vec::from)
    }
}

fn read(mut source: PipeReader, stopped: &PipeReader) -> VecDeque<u8> {
    let mut kept = VecDeque::with_capacity(KEPT);
    let mut buffer = [0; 4096];
    let mut left = PIPE;
    while left > 0 {
        let mut fds = [PollFd::new(&source, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        if poll(&mut fds, None).is_err_and(|error| error != rustix::io::Errno::INTR) {
            break;
        }
        let readable = !fds[0].revents().is_empty();
        let stopping = !fds[1].revents().is_empty();
        if readable {
            let Ok(count @ 1..) = source.read(&mut buffer) else {
                break;
            };
            let excess = (kept.len() + count).saturating_sub(KEPT);
            kept.drain(..excess.min(kept.len()));
            kept.extend(&buffer[..count]);
            left -= if stopping { count.min(left) } else { 0 };
        } else if stopping {
            break;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn keeps_the_end_and_does_not_wait_for_other_writers() {
        let (tail, mut writer) = Tail::start().unwrap();
        let _left_open = writer.try_clone().unwrap();
        for line in 0..50_000 {
            writeln!(writer, "line {line}").unwrap();
        }
        let text = String::from_utf8(tail.finish()).unwrap();
        assert!(text.ends_with("line 49998\nline 49999\n"));
        assert_eq!(text.len(), KEPT);
    }
}
