//! Runs a program with a time limit and keeps its output.

use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Interval at which a running program is polled.
const POLL: Duration = Duration::from_millis(2);

pub struct Finished {
    /// None if it ran past its limit and was killed.
    pub status: Option<ExitStatus>,
    pub stdout: String,
    pub stderr: String,
}

impl Finished {
    pub fn success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    pub fn signal(&self) -> Option<i32> {
        self.status.and_then(|status| status.signal())
    }

    /// Ensures that SIGABRT stopped it, with exactly one line on standard error, which starts with
    /// `message`.
    pub fn ensure_stopped(&self, message: &str) -> Result<()> {
        ensure!(self.signal() == Some(libc::SIGABRT), "expected SIGABRT: {}", self.describe());
        ensure!(
            self.stderr.starts_with(message) && self.stderr.lines().count() == 1,
            "expected the one line `{message}`: {}",
            self.describe()
        );
        Ok(())
    }

    /// Describes how it ended, with its last lines on standard error.
    pub fn describe(&self) -> String {
        let how = match self.status {
            None => "killed at its time limit".to_string(),
            Some(status) => status.to_string(),
        };
        match last_lines(&self.stderr, 12) {
            tail if tail.is_empty() => how,
            tail => format!("{how}\n{tail}"),
        }
    }
}

/// Runs a command and returns what it prints, without the end of the line.
pub fn said(command: &mut Command) -> Result<String> {
    let name = command.get_program().display().to_string();
    let output = command.output().with_context(|| format!("cannot start {name}"))?;
    if !output.status.success() {
        let text = [output.stdout, output.stderr].concat();
        bail!("{name}: {}\n{}", output.status, last_lines(&String::from_utf8_lossy(&text), 20));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// Makes the command for a program, or for `runner` with the program as its last word.
pub fn under(runner: &[&str], program: &Path) -> Command {
    match runner {
        [] => Command::new(program),
        [first, words @ ..] => {
            let mut command = Command::new(first);
            command.args(words).arg(program);
            command
        }
    }
}

/// Runs `command` for at most `limit`. Its output goes to files beside `log`: unlike a pipe, a file
/// does not wait for a grandchild that stays behind. At the limit the whole process group is
/// killed. `address_space` limits its virtual memory in bytes from before it starts.
pub fn run(
    command: &mut Command,
    limit: Duration,
    log: &Path,
    address_space: Option<u64>,
) -> Result<Finished> {
    let (out, err) = (log.with_extension("out"), log.with_extension("err"));
    command
        .stdin(Stdio::null())
        .stdout(File::create(&out).with_context(|| format!("cannot write {}", out.display()))?)
        .stderr(File::create(&err).with_context(|| format!("cannot write {}", err.display()))?)
        // Cargo's own value names directories with libraries of the same name.
        .env_remove("LD_LIBRARY_PATH")
        .process_group(0);
    // SAFETY: all three are plain system calls, allowed between fork and exec.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            // Ignored signals stay ignored, and a shell that starts us in the background ignores
            // some. Python, for one, then has no KeyboardInterrupt.
            for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
                libc::signal(signal, libc::SIG_DFL);
            }
            if let Some(bytes) = address_space {
                let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
                if libc::setrlimit(libc::RLIMIT_AS, &limit) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    let start = Instant::now();
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if start.elapsed() > limit {
            // SAFETY: a system call; the group is the child's own, and the child has not been
            // waited for.
            unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
            child.wait()?;
            break None;
        }
        thread::sleep(POLL);
    };
    Ok(Finished { status, stdout: read(&out)?, stderr: read(&err)? })
}

/// Returns the last `count` lines of `text`, indented to stand below a message.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let tail = &lines[lines.len().saturating_sub(count)..];
    tail.iter().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

fn read(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
