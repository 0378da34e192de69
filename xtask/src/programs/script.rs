//! Parses the header of a script and runs it.

use crate::context::Context;
use crate::header::Header;
use crate::library::Library;
use crate::process::{self, Finished};
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Far more than any script takes, so that it ends only what hangs, also on a busy machine.
const LIMIT_SECONDS: u64 = 240;

/// Programs come from the system's directories, where packages install them.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

pub struct Script {
    pub path: PathBuf,
    pub name: String,
    /// One line about what it does: the first of its comment.
    pub about: String,
    pub packages: Vec<String>,
    pub limit: Duration,
    /// Whether only `--long` runs it.
    pub long: bool,
    /// Options of the library to run it with as well, by their names in `Library::options`.
    pub also: Vec<String>,
    /// A note on the result for readers of the table.
    pub note: Option<String>,
    version: Option<String>,
}

impl Script {
    pub fn read(path: PathBuf, name: String) -> Result<Script> {
        let text = fs::read_to_string(&path)?;
        let known = ["packages", "timeout", "version", "when", "also", "note"];
        let header = Header::parse(&text, "#", &known)?;
        let seconds = match header.one("timeout") {
            Some(value) => value
                .parse()
                .with_context(|| format!("timeout `{value}` is no number of seconds"))?,
            None => LIMIT_SECONDS,
        };
        let when = header.one("when");
        ensure!(matches!(when, None | Some("long")), "`when` can only be `long`");
        let also = header.words("also");
        let known = Library::OPTIONS.map(|(name, _)| name);
        if let Some(unknown) = also.iter().find(|name| !known.contains(&name.as_str())) {
            anyhow::bail!("also: `{unknown}` is none of {}", known.join(", "));
        }
        let about = text.lines().next().and_then(|line| line.strip_prefix("# ")).unwrap_or("");
        ensure!(about.ends_with('.'), "the first line is no comment that says what it does");
        Ok(Script {
            path,
            name,
            about: about.to_string(),
            packages: header.words("packages"),
            limit: Duration::from_secs(seconds),
            long: when.is_some(),
            also,
            note: header.one("note").map(str::to_string),
            version: header.one("version").map(str::to_string),
        })
    }

    /// Runs the script in an empty directory of its own.
    pub fn run(
        &self,
        context: &Context,
        library: &Library,
        name: &str,
        configure: impl FnOnce(&mut Command),
    ) -> Result<Finished> {
        let dir = context.work.join("programs").join(&self.name).join(name);
        fs::create_dir_all(&dir)?;
        fs::remove_dir_all(&dir)?;
        fs::create_dir_all(dir.join("work"))?;
        let mut command = self.command(library, &dir.join("work"));
        configure(&mut command);
        process::run(&mut command, self.limit, &dir.join("run"), None)
    }

    /// Makes the command that runs the script in `dir`.
    pub fn command(&self, library: &Library, dir: &Path) -> Command {
        let mut command = Command::new("/bin/bash");
        command
            .arg(&self.path)
            .current_dir(dir)
            .env_clear()
            .env("PATH", PATH)
            .env("HOME", dir)
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .env("LIBRARY", library.preload());
        command
    }

    /// Returns the program's version, from the output of the header's command.
    pub fn version(&self) -> String {
        let Some(ask) = &self.version else { return String::new() };
        let answer = Command::new("/bin/bash")
            .args(["-c", &format!("{{ {ask}; }} 2>&1")])
            .env("PATH", PATH)
            .env("LC_ALL", "C.UTF-8")
            .output();
        let text = answer.map(|answer| String::from_utf8_lossy(&answer.stdout).into_owned());
        version_in(&text.unwrap_or_default()).to_string()
    }
}

/// Returns the first word of `text` that looks like a version: a number with a dot, without
/// surrounding characters.
fn version_in(text: &str) -> &str {
    text.split(|c: char| c.is_whitespace() || "\",;()/=_".contains(c))
        .map(|word| word.trim_start_matches(|c: char| !c.is_ascii_digit()))
        .find(|word| {
            let mut parts = word.split('.');
            let number = |part: Option<&str>| {
                part.is_some_and(|part| part.starts_with(|c: char| c.is_ascii_digit()))
            };
            number(parts.next()) && number(parts.next())
        })
        .unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_in_what_programs_say() {
        for (said, version) in [
            ("Python 3.11.2", "3.11.2"),
            ("nginx version: nginx/1.22.1", "1.22.1"),
            ("OpenSSH_9.2p1 Debian-2, OpenSSL 3.0.13", "9.2p1"),
            ("Z3 version 4.8.12 - 64 bit", "4.8.12"),
            ("jq-1.6", "1.6"),
            ("openjdk version \"17.0.15\" 2025-04-15", "17.0.15"),
            ("ab 3 of 4.", ""),
        ] {
            assert_eq!(version_in(said), version, "{said}");
        }
    }
}
