//! Errors that set the exit code of `ebb`.

use std::fmt;

/// Wrong options, or options that cannot be carried out.
const USAGE: u8 = 2;
/// The exit code of shells for a program that exists but cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// The exit code of shells for a program that does not exist.
pub const NOT_FOUND: u8 = 127;

/// An error with an exit code of its own.
#[derive(Debug)]
pub struct Stop {
    code: u8,
    message: String,
}

impl Stop {
    pub fn usage(message: impl Into<String>) -> anyhow::Error {
        Self::with(USAGE, message)
    }

    pub fn with(code: u8, message: impl Into<String>) -> anyhow::Error {
        Self { code, message: message.into() }.into()
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Stop {}

/// The exit code for an error: its own, or 1.
pub fn code(error: &anyhow::Error) -> u8 {
    error.downcast_ref::<Stop>().map_or(1, |stop| stop.code)
}
