//! Reads what a machine prints on its serial console.

use ebbmalloc_guest::{End, Mark};

/// A job that has ended.
pub struct Ended {
    pub name: String,
    pub end: End,
    pub ms: u64,
    /// Number of times that a CPU went offline while the job ran.
    pub offline: usize,
    /// What the job, and perhaps the kernel, printed.
    pub output: String,
}

#[derive(Default)]
pub struct Console {
    /// The kernel's release, CPUs and bytes of rseq features.
    pub machine: Option<(String, usize, usize)>,
    pub ended: Vec<Ended>,
    /// Whether all jobs have run.
    pub done: bool,
    running: Option<(String, String)>,
}

impl Console {
    /// Takes the next line. Returns the job that ended with it, if one did.
    pub fn line(&mut self, line: &str) -> Option<&Ended> {
        match Mark::parse(line) {
            Some(Mark::Machine { release, cpus, rseq_bytes }) => {
                self.machine = Some((release, cpus, rseq_bytes));
            }
            Some(Mark::Begin(name)) => self.running = Some((name, String::new())),
            Some(Mark::End { end, ms, offline }) => {
                let (name, output) = self.running.take()?;
                self.ended.push(Ended { name, end, ms, offline, output });
                return self.ended.last();
            }
            Some(Mark::Done) => self.done = true,
            None => {
                if let Some((_, output)) = &mut self.running {
                    output.push_str(line.trim_end());
                    output.push('\n');
                }
            }
        }
        None
    }

    /// Returns the job that runs, or that ran when the machine stopped.
    pub fn running(&self) -> Option<&str> {
        self.running.as_ref().map(|(name, _)| name.as_str())
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
