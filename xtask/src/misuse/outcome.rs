//! Classifies how a program that misused its allocator ended.

use crate::process::Finished;
use anyhow::{Context as _, Result, bail};
use std::fmt::{self, Display};

/// Exit codes that `tests/misuse/misuse.h` defines too.
const EXPLOITABLE: i32 = 42;
const LEAK: i32 = 43;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Stopped on purpose, by SIGABRT, SIGILL or SIGTRAP; the first line of its message, with
    /// numbers replaced by N, and without the process at its end.
    Abort(String),
    /// Killed by SIGSEGV or SIGBUS.
    Segv,
    /// Ended normally, without proof that the misuse had an effect.
    Silent,
    /// The program read earlier contents of a block.
    Leak,
    /// The program got a block that has another owner, or that an attacker chose.
    Exploitable,
    /// Ran past its time limit.
    Hang,
}

impl Outcome {
    pub fn of(run: &Finished) -> Result<Outcome> {
        let Some(status) = run.status else {
            return Ok(Outcome::Hang);
        };
        Ok(match (run.signal(), status.code()) {
            (Some(libc::SIGABRT | libc::SIGILL | libc::SIGTRAP), _) => {
                let line = run.stderr.lines().next().unwrap_or_default();
                Outcome::Abort(without_process(&without_numbers(line)).to_string())
            }
            (Some(libc::SIGSEGV | libc::SIGBUS), _) => Outcome::Segv,
            (None, Some(0)) => Outcome::Silent,
            (None, Some(EXPLOITABLE)) => Outcome::Exploitable,
            (None, Some(LEAK)) => Outcome::Leak,
            _ => bail!("the program itself failed: {}", run.describe()),
        })
    }

    /// Returns whether ebbmalloc itself stopped the program.
    pub fn is_stop(&self) -> bool {
        matches!(self, Outcome::Abort(line) if line.starts_with("ebbmalloc: "))
    }

    /// Returns one character for a table.
    pub fn letter(&self) -> char {
        match self {
            Outcome::Abort(_) => 'a',
            Outcome::Segv => 's',
            Outcome::Silent => '.',
            Outcome::Leak => 'L',
            Outcome::Exploitable => 'X',
            Outcome::Hang => 'H',
        }
    }

    pub fn parse(text: &str) -> Result<Outcome> {
        Ok(match text {
            "segv" => Outcome::Segv,
            "silent" => Outcome::Silent,
            "leak" => Outcome::Leak,
            "exploitable" => Outcome::Exploitable,
            "hang" => Outcome::Hang,
            _ => {
                let line = text.strip_prefix("abort \"").and_then(|rest| rest.strip_suffix('"'));
                let line = line.with_context(|| format!("`{text}` is no outcome"))?;
                Outcome::Abort(line.to_string())
            }
        })
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Outcome::Abort(line) => write!(f, "abort \"{line}\""),
            Outcome::Segv => f.write_str("segv"),
            Outcome::Silent => f.write_str("silent"),
            Outcome::Leak => f.write_str("leak"),
            Outcome::Exploitable => f.write_str("exploitable"),
            Outcome::Hang => f.write_str("hang"),
        }
    }
}

/// Replaces numbers by N: only addresses and sizes differ from run to run.
fn without_numbers(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, number) = rest.split_at(at);
        text.push_str(before);
        text.push('N');
        let (digits, number) = match number.strip_prefix("0x") {
            Some(hexadecimal) => (char::is_ascii_hexdigit as fn(&char) -> bool, hexadecimal),
            None => (char::is_ascii_digit as fn(&char) -> bool, number),
        };
        rest = number.trim_start_matches(|c: char| digits(&c));
    }
    text + rest
}

/// The line without " (NAME, pid N)" at its end.
fn without_process(line: &str) -> &str {
    match line.rfind(" (") {
        Some(at) if line.ends_with(", pid N)") => &line[..at],
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_taken_off_messages() {
        assert_eq!(without_process("a (b) (sort, pid N)"), "a (b)");
        assert_eq!(without_process("a (b)"), "a (b)");
    }

    #[test]
    fn numbers_are_taken_out_of_messages() {
        assert_eq!(without_numbers("a 0x7ffe12 b 100, c"), "a N b N, c");
        assert_eq!(without_numbers("12"), "N");
        assert_eq!(without_numbers("none"), "none");
    }

    #[test]
    fn outcomes_are_read_as_they_are_written() {
        for text in ["segv", "silent", "leak", "exploitable", "hang", "abort \"double free: N\""] {
            assert_eq!(Outcome::parse(text).unwrap().to_string(), text);
        }
        for bad in ["", "abort", "abort x", "quiet"] {
            assert!(Outcome::parse(bad).is_err(), "{bad}");
        }
    }
}
