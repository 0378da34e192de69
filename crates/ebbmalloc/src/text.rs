//! Text for people, made without allocating.

use core::fmt::{Arguments, Display, Formatter, Result, Write};

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
    fn write_str(&mut self, text: &str) -> Result {
        let room = Self::CAPACITY - self.length;
        let taken = text.len().min(room);
        self.buffer[self.length..][..taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.length += taken;
        Ok(())
    }
}

/// A number of bytes for people. A width that is asked for is that of the number.
pub(crate) struct Bytes(pub u64);

impl Display for Bytes {
    fn fmt(&self, f: &mut Formatter) -> Result {
        let width = f.width().unwrap_or(0);
        match self.0 {
            value @ 0..1024 => write!(f, "{value:>width$} B"),
            value @ 1024..0x10_0000 => write!(f, "{:>width$.1} KiB", value as f64 / 1024.0),
            value => write!(f, "{:>width$.1} MiB", value as f64 / (1024.0 * 1024.0)),
        }
    }
}
