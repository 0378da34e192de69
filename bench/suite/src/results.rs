//! What was measured, in a CSV file that grows run by run, so that an interrupted suite can go on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::case::{Figures, Series};

/// One figure of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    pub case: String,
    pub allocator: String,
    pub round: u32,
    pub figure: String,
    pub value: f64,
}

/// A run that gave no figures has this one, and its failure in `failures.csv`.
pub const FAILED: &str = "failed";

/// The files of a run.
pub struct Results {
    out: PathBuf,
    csv: csv::Writer<File>,
    done: BTreeSet<(String, String, u32)>,
}

impl Results {
    /// Opens the results in `out`; `fresh` puts aside what is there.
    pub fn open(out: &Path, fresh: bool) -> Result<Self> {
        let path = out.join("results.csv");
        if fresh && path.exists() {
            for name in ["results.csv", "run.json", "series", "failures.txt"] {
                let old = out.join(format!("{name}.old"));
                // What is not there need not be put aside.
                let _ = fs::remove_dir_all(&old).or_else(|_| fs::remove_file(&old));
                let _ = fs::rename(out.join(name), old);
            }
        }
        fs::create_dir_all(out.join("series")).with_context(|| out.display().to_string())?;
        let done = read(out)?.into_iter().map(|r| (r.case, r.allocator, r.round)).collect();
        let empty = fs::metadata(&path).map_or(true, |meta| meta.len() == 0);
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        let csv = csv::WriterBuilder::new().has_headers(empty).from_writer(file);
        Ok(Self { out: out.into(), csv, done })
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
            self.csv.serialize(Record { case, allocator, round, figure, value })?;
        }
        Ok(self.csv.flush()?)
    }

    /// Notes a run that failed, and why.
    pub fn fail(&mut self, case: &str, allocator: &str, round: u32, why: &str) -> Result<()> {
        use std::io::Write;
        let path = self.out.join("failures.txt");
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        writeln!(file, "{allocator} failed {case} (round {round}): {}", why.replace('\n', " / "))?;
        self.add(case, allocator, round, &Figures::from([(FAILED.into(), 1.0)]))
    }

    /// Keeps the memory over time of the first round.
    pub fn add_series(&self, case: &str, allocator: &str, series: &Series) -> Result<()> {
        let name = format!("{}@{allocator}.json", case.replace('/', "+"));
        Ok(fs::write(self.out.join("series").join(name), serde_json::to_vec(series)?)?)
    }
}

/// Everything measured in `out` so far; a line cut short by an interruption is left out.
pub fn read(out: &Path) -> Result<Vec<Record>> {
    let path = out.join("results.csv");
    if !path.exists() {
        return Ok(Vec::new());
    }
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_path(&path)?;
    Ok(reader.deserialize().filter_map(Result::ok).collect())
}

/// Memory over time by case and allocator.
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
