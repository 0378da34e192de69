//! Formats lines for people without allocating.

use core::fmt::{Arguments, Result, Write};

use crate::platform::os::OsReports;

/// A line of text in a buffer on the stack. Text beyond its capacity is cut off.
pub(crate) struct Line {
    buffer: [u8; Line::CAPACITY],
    length: usize,
}

impl Line {
    const CAPACITY: usize = 320;
    /// The start of every line for people.
    pub const START: &str = "ebbmalloc: ";

    /// Writes [`Line::START`], the text and a line feed to standard error, by one call.
    #[cold]
    #[inline(never)]
    pub fn print(os: &impl OsReports, text: Arguments) {
        let mut line = Self { buffer: [0; Self::CAPACITY], length: 0 };
        // Writing to a line never fails: it cuts.
        let _ = line.write_str(Self::START);
        let _ = line.write_fmt(text);
        let end = line.length.min(Self::CAPACITY - 1);
        line.buffer[end] = b'\n';
        os.print(&line.buffer[..end + 1]);
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> Result {
        let length = text.len().min(Self::CAPACITY - self.length);
        self.buffer[self.length..][..length].copy_from_slice(&text.as_bytes()[..length]);
        self.length += length;
        Ok(())
    }
}
