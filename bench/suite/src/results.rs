//! Stores the measurements in a CSV file that grows run by run, so that an interrupted suite can go
//! on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::case::{Figures, Series};

const RECORDS: &str = "results.csv";
const FAILURES: &str = "failures.csv";

/// One figure of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    pub case: String,
    pub allocator: String,
    pub round: u32,
    pub figure: String,
    pub value: f64,
}

/// A run without figures has this one, and its failure is in `failures.csv`.
pub const FAILED: &str = "failed";

/// A run that failed, and why.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    pub case: String,
    pub allocator: String,
    pub round: u32,
    pub why: String,
}

/// The files of a run.
pub struct Results {
    out: PathBuf,
    records: csv::Writer<File>,
    failures: csv::Writer<File>,
    done: BTreeSet<(String, String, u32)>,
}

impl Results {
    /// Opens the results in `out`; `fresh` puts existing ones aside.
    pub fn open(out: &Path, fresh: bool) -> Result<Self> {
        if fresh {
            put_aside(out);
        } else {
            drop_unfinished(&out.join(RECORDS))?;
        }
        fs::create_dir_all(out.join("series")).with_context(|| out.display().to_string())?;
        let done = read(out)?.into_iter().map(|r| (r.case, r.allocator, r.round)).collect();
        let (records, failures) = (append(&out.join(RECORDS))?, append(&out.join(FAILURES))?);
        Ok(Self { out: out.into(), records, failures, done })
    }

    pub fn has(&self, case: &str, allocator: &str, round: u32) -> bool {
        self.done.contains(&(case.into(), allocator.into(), round))
    }

    pub fn add(
        &mut self,
        case: &str,
        allocator: &str,
        round: u32,
        figures: &Figures,
    ) -> Result<()> {
        for (figure, &value) in figures {
            let (case, allocator, figure) = (case.into(), allocator.into(), figure.clone());
            self.records.serialize(Record { case, allocator, round, figure, value })?;
        }
        Ok(self.records.flush()?)
    }

    /// Notes a run that failed.
    pub fn fail(&mut self, failure: Failure) -> Result<()> {
        self.failures.serialize(&failure)?;
        self.failures.flush()?;
        let Failure { case, allocator, round, .. } = failure;
        self.add(&case, &allocator, round, &Figures::from([(FAILED.into(), 1.0)]))
    }

    /// Keeps the memory over time of the first round.
    pub fn add_series(&self, case: &str, allocator: &str, series: &Series) -> Result<()> {
        let name = format!("{}@{allocator}.json", case.replace('/', "+"));
        Ok(fs::write(self.out.join("series").join(name), serde_json::to_vec(series)?)?)
    }
}

/// Keeps the results of one earlier run as `NAME.old`.
fn put_aside(out: &Path) {
    for name in [RECORDS, FAILURES, "run.json", "series"] {
        let (path, old) = (out.join(name), out.join(format!("{name}.old")));
        if path.exists() {
            // A missing file need not be removed.
            let _ = fs::remove_dir_all(&old).or_else(|_| fs::remove_file(&old));
            let _ = fs::rename(path, old);
        }
    }
}

/// Drops a run whose figures were cut short (full disk, power loss), so that it is made again.
fn drop_unfinished(path: &Path) -> Result<()> {
    let text = fs::read_to_string(path).unwrap_or_default();
    if text.is_empty() || text.ends_with('\n') {
        return Ok(());
    }
    let whole: Vec<Record> = parse(&text[..=text.rfind('\n').unwrap_or(0)])?;
    let of = |record: &Record| (record.case.clone(), record.allocator.clone(), record.round);
    let last = whole.last().map(of);
    let mut rewritten = csv::Writer::from_path(path)?;
    for record in whole.iter().filter(|record| Some(of(record)) != last) {
        rewritten.serialize(record)?;
    }
    Ok(rewritten.flush()?)
}

fn append(path: &Path) -> Result<csv::Writer<File>> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    let file = file.with_context(|| path.display().to_string())?;
    let empty = file.metadata()?.len() == 0;
    // The figures of one run are few and are written at once.
    Ok(csv::WriterBuilder::new().has_headers(empty).from_writer(file))
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<Vec<T>> {
    Ok(csv::Reader::from_reader(text.as_bytes()).deserialize().collect::<Result<_, _>>()?)
}

fn read_csv<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(path)?;
    parse(&text).with_context(|| path.display().to_string())
}

/// Reads all measurements in `out`.
pub fn read(out: &Path) -> Result<Vec<Record>> {
    read_csv(&out.join(RECORDS))
}

/// Reads the runs that failed.
pub fn read_failures(out: &Path) -> Result<Vec<Failure>> {
    read_csv(&out.join(FAILURES))
}

/// Reads memory over time, by case and allocator.
pub fn read_series(out: &Path) -> Result<BTreeMap<(String, String), Series>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(out.join("series")).into_iter().flatten() {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let Some((case, allocator)) = name.split_once('@') else { continue };
        let series = serde_json::from_slice(&fs::read(&path)?)?;
        all.insert((case.replace('+', "/"), allocator.into()), series);
    }
    Ok(all)
}
