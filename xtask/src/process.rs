//! Runs a program with a time limit and keeps what it printed.

use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How often a running program is looked at.
const POLL: Duration = Duration::from_millis(2);

pub struct Finished {
    /// None: it ran past its limit and was killed.
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

    /// That it was stopped by SIGABRT, with exactly one line on standard error, which starts so.
    pub fn ensure_stopped(&self, message: &str) -> Result<()> {
        ensure!(self.signal() == Some(libc::SIGABRT), "expected SIGABRT: {}", self.describe());
        ensure!(
            self.stderr.starts_with(message) && self.stderr.lines().count() == 1,
            "expected the one line `{message}`: {}",
            self.describe()
        );
        Ok(())
    }

    /// What became of it, with the end of what it wrote on standard error.
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

/// A program, by itself or by `runner`, a command that takes it as its last word.
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

/// Runs `command` for at most `limit`, its output going through files beside `log` (a file, unlike a
/// pipe, is not held open by a grandchild that stays behind). The whole process group is killed at the
/// limit. `address_space` bounds its virtual memory in bytes from before it starts.
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
        // Cargo's own, which names directories that hold libraries of the same name.
        .env_remove("LD_LIBRARY_PATH")
        .process_group(0);
    // SAFETY: both are plain system calls, allowed between fork and exec.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            // Ignored signals stay ignored, and a shell that starts us in the background has some ignored: Python,
            // for one, then has no KeyboardInterrupt.
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
            // SAFETY: the group is the child's own, and the child has not been waited for.
            unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
            child.wait()?;
            break None;
        }
        thread::sleep(POLL);
    };
    Ok(Finished { status, stdout: read(&out)?, stderr: read(&err)? })
}

/// The last `count` lines of `text`, indented to stand below a message.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let tail = &lines[lines.len().saturating_sub(count)..];
    tail.iter().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

fn read(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
