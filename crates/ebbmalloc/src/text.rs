//! Text for people, made without allocating.

use core::fmt::{Arguments, Write};

use crate::os::Os;

/// A line of text in a buffer on the stack; what does not fit is cut.
pub(crate) struct Line {
    buffer: [u8; Line::CAPACITY],
    length: usize,
}

impl Line {
    const CAPACITY: usize = 320;
    /// What every line for people starts with.
    pub const START: &str = "ebbmalloc: ";

    /// Writes [`Line::START`], the text and a line feed to standard error, in one piece.
    pub fn print(os: &impl Os, text: Arguments) {
        let mut line = Self { buffer: [0; Self::CAPACITY], length: 0 };
        // Writing to a line cannot fail; it cuts.
        let _ = line.write_str(Self::START);
        let _ = line.write_fmt(text);
        let end = line.length.min(Self::CAPACITY - 1);
        line.buffer[end] = b'\n';
        os.print(&line.buffer[..end + 1]);
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let room = Self::CAPACITY - self.length;
        let taken = text.len().min(room);
        self.buffer[self.length..][..taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.length += taken;
        Ok(())
    }
}
