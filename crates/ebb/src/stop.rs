//! Errors that set the exit code of `ebb`.

use std::fmt;

/// Exit codes, and what they mean. `ebb run` becomes its program, whose exit code is its own.
pub const EXIT_CODES: [(&str, &str); 7] = [
    ("0", "done; of ebb run, the program's own"),
    ("1", "it failed; there is no such process; or the program of ebb compare failed"),
    ("2", "wrong options, or options that cannot be carried out"),
    ("126", "the program cannot be executed"),
    ("127", "the program does not exist"),
    ("130", "interrupted: 128 and the number of the signal"),
    ("141", "the reader of the output is gone, as in ebb why PID | head"),
];

/// The exit codes as a part of a help text.
pub fn exit_codes() -> String {
    let lines = EXIT_CODES.map(|(code, meaning)| format!("  {code:5} {meaning}"));
    format!("Exit codes:\n{}", lines.join("\n"))
}

/// Wrong options, or options that cannot be carried out.
const USAGE: u8 = 2;
/// The exit code of shells for a program that exists but cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// The exit code of shells for a program that does not exist.
pub const NOT_FOUND: u8 = 127;

/// The exit code that shells report for a program that SIGPIPE ended.
const CLOSED: u8 = 141;

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

    /// Ends `ebb` without a message: the reader of its output is gone.
    pub fn silent() -> anyhow::Error {
        Self::with(CLOSED, "")
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

/// Whether an error ends `ebb` without a message.
pub fn is_silent(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Stop>().is_some_and(|stop| stop.message.is_empty())
}

/// The exit code for an error: its own, or 1.
pub fn code(error: &anyhow::Error) -> u8 {
    error.downcast_ref::<Stop>().map_or(1, |stop| stop.code)
}
