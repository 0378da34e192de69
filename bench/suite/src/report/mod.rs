//! The result of a run for people: tables and pictures.
//!
//! `data` holds the results, `means` averages them; `table` and `picture` show them; `before`
//! compares two builds; `markdown` is the document.

mod before;
mod data;
mod markdown;
mod means;
mod picture;
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

/// Writes the tables and pictures of the results in `out`, beside them.
pub fn write(out: &Path) -> Result<()> {
    let data = Data::read(out)?;
    let pictures = picture::write(&data, out).context("drawing the pictures")?;
    let text = markdown::write(&data, &pictures);
    let path = out.join("results.md");
    fs::write(&path, &text).with_context(|| path.display().to_string())?;
    println!("{text}");
    eprintln!("tables and pictures are in {}", out.display());
    Ok(())
}
