//! Defines the protocol between `cargo xtask kernels` and the first process of its virtual
//! machines.
//! Jobs go in by a file. Marks come out on the serial console, among what the jobs print.

use std::fmt::{self, Display};

/// The guest reads its jobs from this file, one a line.
pub const JOBS: &str = "/jobs";
/// The directory of the job that runs apart.
pub const APART: &str = "/tmp/apart";
/// A mark begins with this. What precedes it on the line is output of a job or the kernel.
const SIGN: &str = "@@ebb ";

/// A program to run in the guest.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Job {
    pub name: String,
    /// The guest kills the job after this time.
    pub limit_s: u64,
    /// CPUs go offline and come back while the job runs.
    pub hotplug: bool,
    /// The job starts in an empty directory of its own. What it prints comes after its end, as
    /// marks.
    pub apart: bool,
    /// `NAME=VALUE`.
    pub environment: Vec<String>,
    /// The program's path, and its arguments.
    pub command: Vec<String>,
}

impl Job {
    /// Formats the job as a line of words separated by spaces; names and arguments have none.
    pub fn to_line(&self) -> String {
        let hotplug = if self.hotplug { "hotplug" } else { "still" };
        let apart = if self.apart { "apart" } else { "console" };
        let mut line = format!("{} {} {hotplug} {apart}", self.name, self.limit_s);
        for word in self.environment.iter().chain(&self.command) {
            line.push(' ');
            line.push_str(word);
        }
        line
    }

    /// Returns None if the line is no job.
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ').map(str::to_string).peekable();
        let (name, limit_s) = (words.next()?, words.next()?.parse().ok()?);
        let (hotplug, apart) = (words.next()? == "hotplug", words.next()? == "apart");
        let mut environment = Vec::new();
        while let Some(setting) = words.next_if(|word| !word.starts_with('/')) {
            environment.push(setting);
        }
        let command: Vec<String> = words.collect();
        let job = Self { name, limit_s, hotplug, apart, environment, command };
        (!job.command.is_empty()).then_some(job)
    }
}

/// How a job ended.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum End {
    Exit(i32),
    Signal(i32),
    TimeLimit,
    #[default]
    NotStarted,
}

/// A line that the guest itself prints on the console.
#[derive(Clone, PartialEq, Debug)]
pub enum Mark {
    /// The machine: the kernel's release, the number of CPUs, and the bytes of rseq features (0
    /// before Linux 6.3, where the kernel does not say).
    Machine {
        release: String,
        cpus: usize,
        rseq_bytes: usize,
    },
    /// The lines that follow are this job's.
    Begin(String),
    /// A line of the job's standard output, or of its standard error.
    Out(String),
    Err(String),
    /// The job has ended; CPUs went offline `offline` times while it ran.
    End {
        end: End,
        ms: u64,
        offline: usize,
    },
    /// There are no more jobs.
    Done,
}

impl Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(SIGN)?;
        match self {
            Mark::Machine { release, cpus, rseq_bytes } => {
                write!(f, "machine {release} {cpus} {rseq_bytes}")
            }
            Mark::Begin(name) => write!(f, "begin {name}"),
            Mark::Out(line) => write!(f, "out {line}"),
            Mark::Err(line) => write!(f, "err {line}"),
            Mark::End { end, ms, offline } => {
                let (how, code) = match *end {
                    End::Exit(code) => ("exit", code),
                    End::Signal(signal) => ("signal", signal),
                    End::TimeLimit => ("limit", 0),
                    End::NotStarted => ("absent", 0),
                };
                write!(f, "end {how} {code} {ms} {offline}")
            }
            Mark::Done => f.write_str("done"),
        }
    }
}

impl Mark {
    /// Finds the mark in a line of the console.
    pub fn parse(line: &str) -> Option<Self> {
        let (_, text) = line.split_once(SIGN)?;
        match text.trim_end().split_once(' ').unwrap_or((text.trim_end(), "")) {
            ("out", line) => return Some(Mark::Out(line.to_string())),
            ("err", line) => return Some(Mark::Err(line.to_string())),
            _ => {}
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        Some(match words[..] {
            ["machine", release, cpus, rseq_bytes] => Mark::Machine {
                release: release.to_string(),
                cpus: cpus.parse().ok()?,
                rseq_bytes: rseq_bytes.parse().ok()?,
            },
            ["begin", name] => Mark::Begin(name.to_string()),
            ["end", how, code, ms, offline] => {
                let code = code.parse().ok()?;
                let end = match how {
                    "exit" => End::Exit(code),
                    "signal" => End::Signal(code),
                    "limit" => End::TimeLimit,
                    "absent" => End::NotStarted,
                    _ => return None,
                };
                Mark::End { end, ms: ms.parse().ok()?, offline: offline.parse().ok()? }
            }
            ["done"] => Mark::Done,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_read_as_written() {
        let words = |text: &str| text.split(' ').map(str::to_string).collect::<Vec<_>>();
        let command = words("/tests/model --nocapture A=1");
        let plain = Job { name: "model".into(), limit_s: 60, command, ..Job::default() };
        let environment = words("EBB_STATS=1 LD_PRELOAD=/lib/a.so");
        let full = Job { hotplug: true, environment, ..plain.clone() };
        let apart = Job { apart: true, ..plain.clone() };
        for job in [plain, full, apart] {
            assert_eq!(Job::parse(&job.to_line()), Some(job));
        }
        for bad in ["", "name", "name x still console /a", "name 1 still console A=1"] {
            assert_eq!(Job::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn marks_are_read_as_written() {
        let end = |end| Mark::End { end, ms: 17, offline: 3 };
        for mark in [
            Mark::Machine { release: "6.1.0-50-cloud-amd64".into(), cpus: 4, rseq_bytes: 0 },
            Mark::Begin("model".into()),
            Mark::Out("  two words".into()),
            Mark::Err("".into()),
            end(End::Exit(101)),
            end(End::Signal(6)),
            end(End::TimeLimit),
            end(End::NotStarted),
            Mark::Done,
        ] {
            assert_eq!(Mark::parse(&format!("[  1.2] half a line {mark}\r")), Some(mark));
        }
        assert_eq!(Mark::parse("end exit 0 1 2"), None);
        assert_eq!(Mark::parse("@@ebb end exit x 1 2"), None);
    }
}
