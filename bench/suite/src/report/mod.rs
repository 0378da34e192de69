//! The result of a run for people: tables and pictures.
//!
//! `data` holds the results, `means` averages them; `table` and `picture` show them; `before`
//! compares two builds; `costs` says where the time goes; `markdown` is the document.

mod before;
mod costs;
mod data;
mod markdown;
mod means;
mod picture;
mod rows;
mod table;
mod unit;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use data::Data;

#[derive(clap::Args)]
pub struct Options {
    /// Where the run left its results
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// Writes beside the results in `out` a summary of them, all tables, all rows as CSV, and pictures.
pub fn write(out: &Path) -> Result<()> {
    let data = Data::read(out)?;
    let pictures = picture::write(&data, out).context("drawing the pictures")?;
    let (tables, summary) = (markdown::tables(&data), markdown::write(&data, &pictures));
    let rows = rows::write(&data)?;
    for (name, text) in [("results.md", &summary), ("tables.md", &tables), ("rows.csv", &rows)] {
        let path = out.join(name);
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    println!("{summary}\n{tables}");
    eprintln!("the summary, tables, rows and pictures are in {}", out.display());
    Ok(())
}
