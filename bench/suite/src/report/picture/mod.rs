//! The pictures, as SVG files with a white background of their own.

mod axis;
mod look;
mod over_time;
mod relative;
mod summary;
mod threads;

use std::path::Path;

use anyhow::Result;
use plotters::coord::Shift;
use plotters::prelude::{DrawingArea, IntoDrawingArea, SVGBackend, WHITE};

use super::data::Data;
use crate::case::{PEAK, TIME};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Pixels from the picture's left and upper edge.
type Pixel = (i32, i32);

/// The names of the files that were drawn.
pub struct Pictures {
    pub time: Option<String>,
    pub memory: Option<String>,
    pub summary: Option<String>,
    pub over_time: Vec<String>,
    pub threads: Vec<String>,
}

pub fn write(data: &Data, out: &Path) -> Result<Pictures> {
    remove_old(out)?;
    Ok(Pictures {
        time: relative::draw(data, TIME, "time", out)?,
        memory: relative::draw(data, PEAK, "memory", out)?,
        summary: summary::draw(data, out)?,
        over_time: over_time::draw(data, out)?,
        threads: threads::draw(data, out)?,
    })
}

/// Of an earlier run: a picture that is not drawn anew would contradict the tables.
fn remove_old(out: &Path) -> Result<()> {
    for entry in std::fs::read_dir(out)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "svg") {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Draws a picture of that size into a file; returns the file's name.
fn picture(
    out: &Path,
    name: &str,
    size: (u32, u32),
    draw: impl FnOnce(&Area) -> Result<()>,
) -> Result<String> {
    let name = format!("{name}.svg");
    let path = out.join(&name);
    let area = SVGBackend::new(&path, size).into_drawing_area();
    area.fill(&WHITE)?;
    draw(&area)?;
    area.present()?;
    Ok(name)
}
