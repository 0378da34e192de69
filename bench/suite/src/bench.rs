//! Runs a case on an allocator and takes its figures.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ebb::measure::{Failed, Setting, measure};
use ebb::perf::Perf;
use ebb::spawn;
use ebb::stats::Summary;

use crate::case::{Allocator, CPU, END, FAULTS, Figures, Job, KERNEL, PEAK, Series, TIME};

/// A job is repeated until it has run for this time in total.
const ENOUGH: Duration = Duration::from_millis(300);
/// Maximum number of runs of a job.
const RUNS_MOST: usize = 5;

/// Runs programs.
pub struct Bench {
    pub perf: Perf,
    /// File for the program's output.
    pub output: PathBuf,
    /// Limit in seconds: a program that takes longer is ended, and fails.
    pub limit: u32,
}

impl Bench {
    /// Measures a job on an allocator: one run, or several in a row of a short one. A job of some
    /// hundredths of a second takes twice as long whenever the kernel does something else. So each
    /// figure is the median of its runs. (If the first run alone takes `ENOUGH`, it is not
    /// repeated: long jobs have rounds.) The series is that of the first run.
    pub fn measure(&self, job: &Job, allocator: &Allocator) -> Result<(Figures, Option<Series>)> {
        let begin = Instant::now();
        let (first, series) = self.run(job, allocator)?;
        let mut runs = vec![first];
        while runs.len() < RUNS_MOST && begin.elapsed() < ENOUGH {
            runs.push(self.run(job, allocator)?.0);
        }
        Ok((medians(&runs), series))
    }

    /// Runs a job once on an allocator.
    fn run(&self, job: &Job, allocator: &Allocator) -> Result<(Figures, Option<Series>)> {
        let mut set: Vec<(&str, std::ffi::OsString)> = Vec::new();
        set.extend(allocator.env.iter().map(|(name, value)| (name.as_str(), value.into())));
        set.extend(job.env.iter().map(|(name, value)| (name.as_str(), value.clone())));
        let preload = allocator.library.as_ref().filter(|_| job.preload);
        let list = preload.map(|path| path.clone().into_os_string()).unwrap_or_default();
        set.push(("LD_PRELOAD", list));
        let arguments: Vec<_> = [job.program.clone().into_os_string()]
            .into_iter()
            .chain(job.arguments.clone())
            .collect();
        let command = spawn::Command::new(&job.program, &arguments, &set)?.limit(self.limit);
        let input = File::open("/dev/null")?;
        let output = File::create(&self.output)?;
        let setting =
            Setting { input: &input, output: &output, catch: true, perf: &self.perf, trace: true };
        let library = preload.map(|path| path.canonicalize()).transpose()?;
        let run = match measure(&command, library.as_deref(), &setting) {
            Ok(run) => run,
            Err(Failed::Refused(error)) => bail!("{}: {error}", job.program.display()),
            Err(Failed::Interrupted(_)) => bail!("interrupted"),
            Err(Failed::Measuring(error)) => return Err(error).context("measuring"),
        };
        let mut text = String::new();
        File::open(&self.output)?.read_to_string(&mut text).ok();
        if !run.status.success() {
            let messages = String::from_utf8_lossy(&run.stderr);
            let last: Vec<_> = messages.lines().rev().take(3).collect();
            let end = match run.status.signal() {
                Some(libc::SIGALRM) => format!("did not end within {} s", self.limit),
                _ => run.status.to_string(),
            };
            bail!("{end}; {}", last.into_iter().rev().collect::<Vec<_>>().join(" / "));
        }
        ensure!(run.loaded != Some(false), "preloading had no effect");
        let sample = &run.sample;
        let mut figures = Figures::from([
            (TIME.to_string(), sample.wall_seconds),
            (CPU.to_string(), sample.user_seconds + sample.system_seconds),
            (KERNEL.to_string(), sample.system_seconds),
            (FAULTS.to_string(), (sample.minor_faults + sample.major_faults) as f64),
            (PEAK.to_string(), sample.peak_bytes as f64 / 1024.0),
        ]);
        figures.extend(sample.end_bytes.map(|bytes| (END.to_string(), bytes as f64 / 1024.0)));
        let (reported, series) = reported(&text)?;
        figures.extend(reported);
        Ok((figures, series))
    }
}

/// Returns the median of each figure that all of these runs have.
fn medians(runs: &[Figures]) -> Figures {
    let names = runs.first().into_iter().flat_map(|run| run.keys());
    let median = |name: &String| {
        let values: Option<Vec<f64>> = runs.iter().map(|run| run.get(name).copied()).collect();
        Some((name.clone(), Summary::of(&values?)?.median))
    };
    names.filter_map(median).collect()
}

/// Parses the figures that the program prints on its last line.
fn reported(text: &str) -> Result<(Figures, Option<Series>)> {
    let last = text.trim_end().lines().next_back().unwrap_or_default();
    let Ok(serde_json::Value::Object(map)) = serde_json::from_str(last) else {
        return Ok(Default::default());
    };
    let series = map.get("series").map(|series| serde_json::from_value(series.clone()));
    let figures = map.iter().filter_map(|(name, value)| Some((name.clone(), value.as_f64()?)));
    Ok((figures.collect(), series.transpose().context("the program's series")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Kind;

    /// Returns how often a shell command is run.
    fn runs_of(name: &str, command: &str) -> usize {
        let folder = std::env::temp_dir().join(format!("suite-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let marks = folder.join("marks");
        let bench = Bench { perf: Perf::probe(), output: folder.join("output"), limit: 60 };
        let allocator = Allocator {
            name: "system".into(),
            library: None,
            env: Vec::new(),
            origin: String::new(),
            kind: Kind::Peer,
        };
        let job = Job::new("sh").arg("-c").arg(format!("echo >> \"$MARKS\"; {command}"));
        let (figures, _) = bench.measure(&job.env("MARKS", &marks), &allocator).unwrap();
        assert!(figures[TIME] > 0.0);
        let runs = std::fs::read_to_string(&marks).unwrap().lines().count();
        std::fs::remove_dir_all(folder).unwrap();
        runs
    }

    #[test]
    fn a_long_run_is_not_repeated() {
        assert_eq!(runs_of("long", "sleep 0.4"), 1);
    }

    #[test]
    fn a_short_run_is_repeated() {
        // Any of these may meet a machine that is busy with something else.
        let runs: Vec<_> = (0..20).map(|_| runs_of("short", "true")).collect();
        assert!(
            runs.iter().all(|&runs| runs <= RUNS_MOST) && runs.contains(&RUNS_MOST),
            "{runs:?}"
        );
    }

    #[test]
    fn one_slow_run_of_several_says_nothing() {
        let run = |time: f64, peak: f64| Figures::from([(TIME.into(), time), (PEAK.into(), peak)]);
        let runs = [run(0.04, 7.0), run(0.11, 9.0), run(0.05, 8.0)];
        assert_eq!(medians(&runs), run(0.05, 8.0));
        assert_eq!(medians(&runs[..1]), runs[0]);
        let without = Figures::from([(TIME.into(), 0.06)]);
        let some = medians(&[run(0.04, 7.0), without.clone(), without]);
        assert_eq!(some, Figures::from([(TIME.into(), 0.06)]), "a figure that not all have");
    }

    #[test]
    fn the_last_line_may_hold_figures() {
        let (figures, series) = reported("hello\n{\"time_s\": 1.5, \"note\": \"x\"}\n").unwrap();
        assert_eq!(figures, Figures::from([("time_s".into(), 1.5)]));
        assert!(series.is_none());
        assert!(reported("no figures\n").unwrap().0.is_empty());
        let (_, series) = reported("{\"series\": [[0.5, 10, 4]]}").unwrap();
        assert_eq!(series, Some(vec![(0.5, 10.0, 4.0)]));
    }
}
