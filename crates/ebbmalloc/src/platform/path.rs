//! Makes paths of files without allocating.

use core::ffi::CStr;
use core::fmt::{Result, Write};

use crate::figures::process::ProcessName;

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

    /// The path of this process: in it, `%p` stands for the number of the process and `%n` for the
    /// name of its program.
    pub fn of_process(&self, process: ProcessName) -> Self {
        let (mut path, mut rest) = (Self::EMPTY, &self.bytes[..self.length]);
        loop {
            rest = match rest {
                // Writing to a path never fails: it cuts.
                [b'%', b'p', rest @ ..] => {
                    let _ = write!(path, "{}", process.id);
                    rest
                }
                [b'%', b'n', rest @ ..] => {
                    path.add(process.program.as_bytes());
                    rest
                }
                [byte, rest @ ..] => {
                    path.add(&[*byte]);
                    rest
                }
                [] => return path,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_the_process() {
        let mut path = Path::EMPTY;
        let process = ProcessName { program: "sort", id: 1234 };
        path.add(b"/var/%n/%p.%%.json%");
        let mut path = path.of_process(process);
        assert_eq!(path.c_str(), Some(c"/var/sort/1234.%%.json%"));
        path.add(&[b'x'; 600]);
        assert_eq!(path.c_str(), None);
    }
}
