//! Holds the path of a file, without allocating.

use core::ffi::CStr;
use core::fmt;

use crate::platform::os::OsProcess;

/// A path, cut to its capacity.
#[derive(Clone, Copy)]
pub(crate) struct Path {
    /// A zero byte follows the path.
    bytes: [u8; Path::CAPACITY],
    length: usize,
}

impl Path {
    const CAPACITY: usize = 512;
    pub const EMPTY: Self = Self { bytes: [0; Self::CAPACITY], length: 0 };

    /// The path in an environment variable; empty if it is not set.
    pub fn of_environment(os: &impl OsProcess, name: &str) -> Self {
        let mut path = Self::EMPTY;
        let room = &mut path.bytes[..Self::CAPACITY - 1];
        path.length = os.environment(name, room).unwrap_or(0);
        path
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The path; `None` if it was cut.
    pub fn c_str(&self) -> Option<&CStr> {
        let whole = self.length < Self::CAPACITY - 1;
        whole.then(|| CStr::from_bytes_until_nul(&self.bytes).ok())?
    }

    /// The path for people.
    pub fn text(&self) -> &str {
        str::from_utf8(&self.bytes[..self.length]).unwrap_or("?")
    }
}

impl fmt::Write for Path {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let length = text.len().min(Self::CAPACITY - 1 - self.length);
        self.bytes[self.length..][..length].copy_from_slice(&text.as_bytes()[..length]);
        self.length += length;
        Ok(())
    }
}
