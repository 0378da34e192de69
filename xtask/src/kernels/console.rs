//! Reads what a machine prints on its serial console.

use crate::process::Finished;
use ebbmalloc_guest::{End, Mark};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// A job that has ended.
#[derive(Default)]
pub struct Ended {
    pub name: String,
    pub end: End,
    pub ms: u64,
    /// Number of times that a CPU went offline while the job ran.
    pub offline: usize,
    /// What the job, and perhaps the kernel, printed.
    pub output: String,
    /// What a job printed that ran apart.
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// Returns the run of a job that ran apart, as if it had run here.
    pub fn run(&self) -> Finished {
        let status = match self.end {
            End::Exit(code) => Some(code << 8),
            End::Signal(signal) => Some(signal),
            // As a shell reports it.
            End::NotStarted => Some(127 << 8),
            End::TimeLimit => None,
        };
        Finished {
            status: status.map(ExitStatus::from_raw),
            stdout: self.stdout.clone(),
            stderr: self.stderr.clone(),
        }
    }
}

#[derive(Default)]
pub struct Console {
    /// The kernel's release, CPUs and bytes of rseq features.
    pub machine: Option<(String, usize, usize)>,
    pub ended: Vec<Ended>,
    /// Whether all jobs have run.
    pub done: bool,
    running: Option<Ended>,
}

impl Console {
    /// Takes the next line. Returns the job that ended with it, if one did.
    pub fn line(&mut self, line: &str) -> Option<&Ended> {
        match Mark::parse(line) {
            Some(Mark::Machine { release, cpus, rseq_bytes }) => {
                self.machine = Some((release, cpus, rseq_bytes));
            }
            Some(Mark::Begin(name)) => self.running = Some(Ended { name, ..Ended::default() }),
            Some(Mark::End { end, ms, offline }) => {
                let job = self.running.take()?;
                self.ended.push(Ended { end, ms, offline, ..job });
                return self.ended.last();
            }
            Some(Mark::Done) => self.done = true,
            Some(Mark::Out(line)) => self.add(&line, |job| &mut job.stdout),
            Some(Mark::Err(line)) => self.add(&line, |job| &mut job.stderr),
            None => self.add(line.trim_end(), |job| &mut job.output),
        }
        None
    }

    /// Returns the job that runs, or that ran when the machine stopped.
    pub fn running(&self) -> Option<&str> {
        self.running.as_ref().map(|job| job.name.as_str())
    }

    fn add(&mut self, line: &str, to: fn(&mut Ended) -> &mut String) {
        if let Some(text) = self.running.as_mut().map(to) {
            text.push_str(line);
            text.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_belongs_to_the_job_that_runs() {
        let mut console = Console::default();
        let marks = [
            Mark::Machine { release: "6.1".into(), cpus: 4, rseq_bytes: 0 },
            Mark::Begin("one".into()),
            Mark::End { end: End::Exit(0), ms: 5, offline: 2 },
            Mark::Begin("two".into()),
        ];
        for mark in marks {
            console.line("something\r");
            console.line(&mark.to_string());
        }
        assert_eq!(console.machine, Some(("6.1".into(), 4, 0)));
        assert_eq!(console.running(), Some("two"));
        let one = &console.ended[0];
        assert_eq!(
            (one.name.as_str(), one.output.as_str(), one.offline),
            ("one", "something\n", 2)
        );
        assert!(!console.done);
        console.line(&format!("half a line {}", Mark::Done));
        assert!(console.done);
    }
}
