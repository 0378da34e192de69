//! The result of a run for people: Markdown tables, and pictures.

mod table;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::conditions::Conditions;
use crate::results;

#[derive(clap::Args)]
pub struct Options {
    /// Where the run left its results
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// Writes the tables and pictures of the results in `out`, beside them.
pub fn write(out: &Path) -> Result<()> {
    let conditions = Conditions::read(out)?;
    let records = results::read(out)?;
    let failures = "";
    let text = table::markdown(&conditions, &records, failures);
    let path = out.join("results.md");
    fs::write(&path, &text)?;
    println!("{text}");
    eprintln!("the tables are in {}", path.display());
    Ok(())
}
