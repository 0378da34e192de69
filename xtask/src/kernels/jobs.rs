//! Plans the jobs of each machine and judges how they ended.

use super::build::{MUSL, Programs, STATIC};
use super::console::Ended;
use super::guest_paths::{LIBRARY, TESTS};
use super::machine::Accelerator;
use crate::c::SKIPPED;
use crate::process::last_lines;
use anyhow::Result;
use ebbmalloc_guest::{End, Job};

/// How the output proves that a job tested what it is for.
pub enum Proof<'a> {
    /// The job ended with code 0; nothing else is required.
    End,
    /// Its tests need percpu mode, and print that they skip where it is missing.
    Sequences,
    /// Its statistics name this mode.
    Mode(String),
    /// This judges the job, to which the ended jobs are known. It returns the reason of a job that
    /// could not do its test.
    Judge(Judge<'a>),
}

type Judge<'a> = Box<dyn Fn(&Ended, &[Ended]) -> Result<Option<String>> + 'a>;

/// A job and how to judge it.
pub struct Planned<'a> {
    pub job: Job,
    pub proof: Proof<'a>,
}

#[derive(PartialEq, Debug)]
pub enum Verdict {
    Passed,
    Failed(String),
    Skipped(String),
}

/// Returns the jobs of a machine on which `mode` is expected.
pub fn plan<'a>(programs: &Programs, mode: &str, accelerator: Accelerator) -> Vec<Planned<'a>> {
    let in_mode = || Proof::Mode(mode.to_string());
    let mut plan = Vec::new();
    let mut add = |name: &str, proof, environment: &[&str], command: &[&str]| {
        let job = Job {
            name: name.to_string(),
            limit_s: 300,
            hotplug: name.ends_with("-hotplug"),
            apart: false,
            environment: environment.iter().map(|setting| setting.to_string()).collect(),
            command: command.iter().map(|word| word.to_string()).collect(),
        };
        plan.push(Planned { job, proof });
    };

    // Every kind of interruption, against a shadow model; also with CPUs that come and go.
    let interrupts = format!("{TESTS}/interrupts");
    let one_by_one = [interrupts.as_str(), "--nocapture", "--test-threads=1"];
    // Under TCG a handler takes about as long as the interval of the timers, so run fewer rounds.
    let rounds: &[&str] = match accelerator {
        Accelerator::Kvm => &[],
        Accelerator::Tcg => &["EBB_TEST_ROUNDS=400"],
    };
    add("interrupts", Proof::Sequences, rounds, &one_by_one);
    add("interrupts-hotplug", Proof::Sequences, rounds, &one_by_one);
    for test in programs.tests.iter().filter(|test| *test != "interrupts" && *test != "global") {
        let path = format!("{TESTS}/{test}");
        add(test, Proof::End, &[], &[&path, "--test-threads=2"]);
    }
    let global = format!("{TESTS}/global");
    add("global", in_mode(), &["EBB_STATS=1"], &[&global]);

    // The contract, through the C library.
    let preload = format!("LD_PRELOAD={LIBRARY}");
    for program in &programs.c {
        let path = format!("{TESTS}/{program}");
        add(program, in_mode(), &["EBB_STATS=1", &preload], &[&path]);
    }
    let stress = format!("{TESTS}/stress");
    // Without statistics calls take the shortest path.
    add("stress-quiet", Proof::End, &[&preload], &[&stress]);
    add("stress-hotplug", in_mode(), &["EBB_STATS=1", &preload], &[&stress]);
    let fixed = format!("{TESTS}/{STATIC}");
    add("stress-static", in_mode(), &["EBB_STATS=1"], &[&fixed]);

    // With musl, only the library registers threads for rseq.
    if programs.no_musl.is_none() {
        let [interrupts, global, unit] =
            ["interrupts", "global", "ebbmalloc"].map(|program| format!("{TESTS}/{program}{MUSL}"));
        let one_by_one = [interrupts.as_str(), "--nocapture", "--test-threads=1"];
        add("interrupts-musl", Proof::Sequences, rounds, &one_by_one);
        add("interrupts-musl-hotplug", Proof::Sequences, rounds, &one_by_one);
        add("global-musl", in_mode(), &["EBB_STATS=1"], &[&global]);
        add("own-area-musl", Proof::Sequences, &[], &[&unit, "own_area", "--nocapture"]);
    }

    // Modes that are not the default here.
    for other in ["thread", "slot"] {
        let (asked, proof) = (format!("EBB_MODE={other}"), Proof::Mode(other.to_string()));
        add(&format!("stress-{other}"), proof, &["EBB_STATS=1", &asked, &preload], &[&stress]);
    }
    let unregistered = "GLIBC_TUNABLES=glibc.pthread.rseq=0";
    let thread = Proof::Mode("thread".to_string());
    add("stress-unregistered", thread, &["EBB_STATS=1", unregistered, &preload], &[&stress]);
    plan
}

impl<'a> Planned<'a> {
    pub fn judged(
        job: Job,
        judge: impl Fn(&Ended, &[Ended]) -> Result<Option<String>> + 'a,
    ) -> Self {
        Self { job, proof: Proof::Judge(Box::new(judge)) }
    }

    /// Judges a job, which is not among the ended ones if the machine stopped before its end.
    pub fn judge(&self, all: &[Ended], mode: &str) -> Verdict {
        let Some(ended) = all.iter().find(|ended| ended.name == self.job.name) else {
            return Verdict::Failed("the machine did not come to its end".to_string());
        };
        if let Proof::Judge(judge) = &self.proof {
            return match judge(ended, all) {
                Ok(None) => Verdict::Passed,
                Ok(Some(why)) => Verdict::Skipped(why),
                Err(error) => Verdict::Failed(format!("{error:#}")),
            };
        }
        let Ended { end, offline, output, .. } = ended;
        let failed = |why: String| Verdict::Failed(format!("{why}\n{}", last_lines(output, 15)));
        if *end == End::Exit(SKIPPED) {
            return Verdict::Skipped(output.lines().next().unwrap_or_default().to_string());
        }
        if *end != End::Exit(0) {
            return failed(format!("{end:?}"));
        }
        if self.job.hotplug && *offline == 0 {
            return failed("no CPU went offline meanwhile".to_string());
        }
        match &self.proof {
            Proof::Judge(_) | Proof::End => Verdict::Passed,
            Proof::Sequences => match output.lines().find(|line| line.contains("SKIPPED")) {
                Some(line) if mode.starts_with("percpu") => failed(line.to_string()),
                Some(line) => Verdict::Skipped(line.trim().to_string()),
                None => Verdict::Passed,
            },
            Proof::Mode(mode) if output.contains(&format!(" mode {mode} (")) => Verdict::Passed,
            Proof::Mode(mode) => failed(format!("no statistics of mode {mode}")),
        }
    }
}

/// Returns the mode and its reason from the statistics in `output`.
pub fn mode_line(output: &str) -> Option<&str> {
    let line =
        output.lines().find(|line| line.contains("ebbmalloc: ") && line.contains(" mode "))?;
    line.split_once(" mode ").map(|(_, mode)| mode.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(proof: Proof, hotplug: bool, ended: Option<Ended>, mode: &str) -> Verdict {
        Planned { job: Job { hotplug, ..Job::default() }, proof }.judge(ended.as_slice(), mode)
    }

    fn exit(code: i32, offline: usize, output: &str) -> Option<Ended> {
        let output = output.to_string();
        Some(Ended { end: End::Exit(code), offline, output, ..Ended::default() })
    }

    #[test]
    fn verdicts() {
        let failed = |verdict| matches!(verdict, Verdict::Failed(_));
        let skipped = "SKIPPED: no percpu mode here (asked for)";
        let line = "ebbmalloc: 1.0 mode percpu by cpu_id (the default)";
        assert_eq!(judge(Proof::End, true, exit(0, 1, ""), ""), Verdict::Passed);
        assert!(failed(judge(Proof::End, true, exit(0, 0, ""), "")));
        assert!(failed(judge(Proof::End, false, exit(101, 0, ""), "")));
        assert!(failed(judge(Proof::End, false, None, "")));
        assert_eq!(judge(Proof::Sequences, false, exit(0, 0, ""), "percpu"), Verdict::Passed);
        assert!(failed(judge(Proof::Sequences, false, exit(0, 0, skipped), "percpu by cpu_id")));
        let verdict = judge(Proof::Sequences, false, exit(0, 0, skipped), "thread");
        assert_eq!(verdict, Verdict::Skipped(skipped.to_string()));
        let by = |id| Proof::Mode(format!("percpu by {id}"));
        assert_eq!(judge(by("cpu_id"), false, exit(0, 0, line), ""), Verdict::Passed);
        assert!(failed(judge(by("mm_cid"), false, exit(0, 0, line), "")));
        assert_eq!(mode_line(line), Some("percpu by cpu_id (the default)"));
    }
}
