//! Formats lines for people without allocating.

use core::fmt::{Arguments, Result, Write};

use crate::figures::process::ProcessName;
use crate::platform::os::OsReports;

/// A line of text in a buffer on the stack. Text beyond its capacity is cut off.
pub(crate) struct Line {
    buffer: [u8; Line::CAPACITY],
    length: usize,
    /// Where the text is cut off.
    end: usize,
}

impl Line {
    const CAPACITY: usize = 360;
    const TEXT_MAX: usize = 320;
    /// The start of every line for people.
    pub const START: &str = "ebbmalloc: ";

    /// Writes [`Line::START`], the text and a line feed to standard error, by one call.
    #[cold]
    #[inline(never)]
    pub fn print(os: &impl OsReports, text: Arguments) {
        let mut line = Self { buffer: [0; Self::CAPACITY], length: 0, end: Self::TEXT_MAX };
        // Writing to a line never fails: it cuts.
        let _ = line.write_str(Self::START);
        let _ = line.write_fmt(text);
        line.end = Self::CAPACITY - 1;
        // Lines after the first of a report are indented.
        if !line.buffer[Self::START.len()..].starts_with(b"  ") {
            let _ = write!(line, "{}", ProcessName::of(os));
        }
        line.buffer[line.length] = b'\n';
        os.print(&line.buffer[..line.length + 1]);
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> Result {
        let length = text.len().min(self.end - self.length);
        self.buffer[self.length..][..length].copy_from_slice(&text.as_bytes()[..length]);
        self.length += length;
        Ok(())
    }
}

impl ProcessName {
    pub(crate) fn of(os: &impl OsReports) -> Self {
        let path = os.program();
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._+-".contains(byte);
        let length = name.iter().take(16).take_while(|byte| is_plain(byte)).count();
        Self { program: str::from_utf8(&name[..length]).unwrap_or(""), id: os.process_id() }
    }
}
