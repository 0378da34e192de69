//! Formats messages for people without allocating.

use core::ffi::CStr;
use core::fmt::{Arguments, Display, Formatter, Result, Write};

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

/// A path in a buffer of its own.
#[derive(Clone, Copy)]
pub(crate) struct Path {
    bytes: [u8; Path::CAPACITY],
    length: usize,
}

impl Path {
    const CAPACITY: usize = 512;

    pub const EMPTY: Self = Self { bytes: [0; Self::CAPACITY], length: 0 };

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Adds bytes, cut to fit.
    pub fn add(&mut self, bytes: &[u8]) {
        let length = bytes.len().min(Self::CAPACITY - 1 - self.length);
        self.bytes[self.length..][..length].copy_from_slice(&bytes[..length]);
        self.length += length;
    }

    /// Adds a pattern, in which `%p` stands for the number of the process and `%n` for the name of
    /// its program.
    pub fn add_pattern(&mut self, pattern: &[u8], process: ProcessName) {
        let mut rest = pattern;
        loop {
            rest = match rest {
                // Writing to a path never fails: it cuts.
                [b'%', b'p', rest @ ..] => {
                    let _ = write!(self, "{}", process.id);
                    rest
                }
                [b'%', b'n', rest @ ..] => {
                    self.add(process.program.as_bytes());
                    rest
                }
                [byte, rest @ ..] => {
                    self.add(&[*byte]);
                    rest
                }
                [] => return,
            }
        }
    }

    /// The path; `None` if it was too long.
    pub fn c_str(&self) -> Option<&CStr> {
        let whole = self.length < Self::CAPACITY - 1;
        whole.then(|| CStr::from_bytes_until_nul(&self.bytes).ok())?
    }

    /// The path for messages.
    pub fn shown(&self) -> &str {
        str::from_utf8(&self.bytes[..self.length]).unwrap_or("?")
    }
}

impl Write for Path {
    fn write_str(&mut self, text: &str) -> Result {
        self.add(text.as_bytes());
        Ok(())
    }
}

/// A process as messages name it: " (sort, pid 1234)".
#[derive(Clone, Copy, Debug)]
pub struct ProcessName {
    /// The name of the program's file, as far as its letters are plain ones.
    pub program: &'static str,
    /// The number of the process; 0 if it is unknown.
    pub id: u32,
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

impl Display for ProcessName {
    fn fmt(&self, f: &mut Formatter) -> Result {
        match self {
            Self { id: 0, .. } => Ok(()),
            Self { program: "", id } => write!(f, " (pid {id})"),
            Self { program, id } => write!(f, " ({program}, pid {id})"),
        }
    }
}

/// Shows `value` divided by `unit`, rounded to `digits` digits after the point. A format width
/// counts all characters. Formatting floating-point numbers instead would add 30 KiB of code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decimal {
    pub value: u64,
    pub unit: u64,
    pub digits: usize,
}

impl Display for Decimal {
    fn fmt(&self, f: &mut Formatter) -> Result {
        let &Self { value, unit, digits } = self;
        let scale = 10u128.pow(digits as u32);
        let rounded = (value as u128 * scale + unit as u128 / 2) / unit as u128;
        let (whole, fraction) = ((rounded / scale) as u64, (rounded % scale) as u64);
        let width = f.width().unwrap_or(0);
        if digits == 0 {
            return write!(f, "{whole:>width$}");
        }
        write!(f, "{whole:>0$}.{fraction:0digits$}", width.saturating_sub(digits + 1))
    }
}

/// `part` as a percentage of `of`.
pub(crate) fn percent(part: u64, of: u64, digits: usize) -> Decimal {
    Decimal { value: 100 * part, unit: of.max(1), digits }
}

/// Shows a number of bytes in B, KiB or MiB. A format width counts the number without its unit.
pub(crate) struct Bytes(pub u64);

impl Display for Bytes {
    fn fmt(&self, f: &mut Formatter) -> Result {
        let width = f.width().unwrap_or(0);
        let value = self.0;
        let (unit, name) = match value {
            0..1024 => return write!(f, "{value:>width$} B"),
            1024..0x10_0000 => (1 << 10, "KiB"),
            _ => (1 << 20, "MiB"),
        };
        write!(f, "{:>width$} {name}", Decimal { value, unit, digits: 1 })
    }
}

#[cfg(test)]
mod tests {
    use std::format;

    use super::*;

    #[test]
    fn paths_name_the_process() {
        let mut path = Path::EMPTY;
        let process = ProcessName { program: "sort", id: 1234 };
        path.add_pattern(b"/var/%n/%p.%%.json%", process);
        assert_eq!(path.c_str(), Some(c"/var/sort/1234.%%.json%"));
        path.add(&[b'x'; 600]);
        assert_eq!(path.c_str(), None);
        assert_eq!(format!("{process}"), " (sort, pid 1234)");
    }

    #[test]
    fn numbers_for_people() {
        let decimal = |value, unit, digits| Decimal { value, unit, digits };
        assert_eq!(format!("{}", decimal(1_234_567, 1_000_000, 3)), "1.235");
        assert_eq!(format!("{:>8}", decimal(1_049, 1_000, 1)), "     1.0");
        assert_eq!(format!("{}|{}", decimal(1_050, 1_000, 1), decimal(1_500, 1_000, 0)), "1.1|2");
        assert_eq!(format!("{:>3}", percent(1, 3, 0)), " 33");
        assert_eq!(format!("{}", percent(5, 0, 1)), "500.0");
        assert_eq!(format!("{}", decimal(u64::MAX, 1, 2)), "18446744073709551615.00");
        assert_eq!(format!("{:>6}|{}", Bytes(1023), Bytes(1024)), "  1023 B|1.0 KiB");
        assert_eq!(format!("{:>8}", Bytes(3 << 19)), "     1.5 MiB");
    }
}
