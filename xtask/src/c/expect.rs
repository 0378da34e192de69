//! Parses and judges how a contract program has to end.

use crate::process::Finished;
use anyhow::{Context as _, Result, bail, ensure};

#[derive(PartialEq, Debug)]
pub enum Expect {
    Exit(i32),
    /// SIGABRT, and exactly one line on standard error, which starts with this text.
    Abort(String),
    /// SIGABRT, and a report of check mode that starts with this text.
    Report(String),
    /// SIGSEGV, and a report that starts with this text.
    Fault(String),
}

impl Expect {
    pub fn parse(text: &str) -> Result<Self> {
        match text.split_once(' ') {
            Some(("exit", code)) => Ok(Self::Exit(code.parse().context("no exit code")?)),
            Some(("abort", message)) => Ok(Self::Abort(quoted(message)?)),
            Some(("report", message)) => Ok(Self::Report(quoted(message)?)),
            Some(("fault", message)) => Ok(Self::Fault(quoted(message)?)),
            _ => bail!(
                "`expect: {text}` is neither `exit CODE` nor `abort`, `report` or \
                 `fault \"MESSAGE\"`"
            ),
        }
    }

    /// Returns an error unless the run ended as expected.
    pub fn judge(&self, run: &Finished) -> Result<()> {
        let (signal, name, message) = match self {
            Self::Exit(code) => {
                let exited = run.status.and_then(|status| status.code());
                ensure!(exited == Some(*code), "expected exit {code}, got {}", run.describe());
                return Ok(());
            }
            Self::Abort(message) | Self::Report(message) => (libc::SIGABRT, "SIGABRT", message),
            Self::Fault(message) => (libc::SIGSEGV, "SIGSEGV", message),
        };
        ensure!(run.signal() == Some(signal), "expected {name}, got {}", run.describe());
        let is_line = run.stderr.lines().count() == 1 && run.stderr.ends_with('\n');
        let (as_wanted, what) = match self {
            Self::Abort(_) => (is_line, "the one line"),
            _ => (true, "a report that starts with"),
        };
        let starts = as_wanted && run.stderr.starts_with(message);
        ensure!(starts, "expected {what} `{message}`, got {}", run.describe());
        Ok(())
    }
}

pub fn quoted(text: &str) -> Result<String> {
    match text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(text) => Ok(text.to_string()),
        None => bail!("{text} must stand in quotation marks"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expectations() {
        assert_eq!(Expect::parse("exit 3").unwrap(), Expect::Exit(3));
        assert_eq!(Expect::parse("abort \"a b: \"").unwrap(), Expect::Abort("a b: ".into()));
        assert_eq!(Expect::parse("fault \"a\"").unwrap(), Expect::Fault("a".into()));
        for bad in ["", "exit", "exit x", "abort message", "succeed 1"] {
            assert!(Expect::parse(bad).is_err(), "{bad}");
        }
    }
}
