//! Draws resident memory over time: areas on top of each other, one for each line of the ledger.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use super::report::Report;

const SIZE: (u32, u32) = (1000, 480);
const MIB: f64 = (1 << 20) as f64;

/// Draws all reports into an SVG file.
pub fn draw(reports: &[Report], file: &Path) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| anyhow!("cannot draw {}: {error}", file.display());
    let seconds = |report: &Report| report.at_seconds.unwrap_or(0.0);
    let last = reports.iter().map(seconds).fold(0.1, f64::max);
    let most = reports.iter().map(|report| report.accounted_bytes).max().unwrap_or(0) as f64 / MIB;
    let Some(newest) = reports.last() else { return Ok(()) };
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(|error| failed(&error))?;
        let title = format!("{} (pid {}): resident memory over time", newest.program, newest.pid);
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 18))
            .margin(10)
            .margin_right(230)
            .x_label_area_size(36)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..last, 0.0..most * 1.05)
            .map_err(|error| failed(&error))?;
        chart
            .configure_mesh()
            .x_desc("seconds")
            .y_desc("MiB")
            .draw()
            .map_err(|error| failed(&error))?;
        let used = |index: usize| reports.iter().any(|report| report.lines[index].bytes > 0);
        let used: Vec<_> = (0..newest.lines.len()).filter(|&index| used(index)).collect();
        let mut below = vec![0.0; reports.len()];
        for (place, &index) in used.iter().enumerate() {
            let color = Palette99::pick(index).mix(0.8);
            let above: Vec<_> = reports
                .iter()
                .zip(&below)
                .map(|(report, below)| below + report.lines[index].bytes as f64 / MIB)
                .collect();
            let top = reports.iter().zip(&above).map(|(report, &y)| (seconds(report), y));
            let bottom = reports.iter().zip(&below).map(|(report, &y)| (seconds(report), y)).rev();
            let corners: Vec<_> = top.chain(bottom).collect();
            chart
                .draw_series([Polygon::new(corners, color.filled())])
                .map_err(|error| failed(&error))?;
            below = above;
            // The topmost area first, in the order of the chart.
            let y = 50 + 20 * (used.len() - 1 - place) as i32;
            let x = SIZE.0 as i32 - 220;
            area.draw(&Rectangle::new([(x, y), (x + 12, y + 12)], color.filled()))
                .map_err(|error| failed(&error))?;
            let label = Text::new(newest.lines[index].label, (x + 18, y), ("sans-serif", 13));
            area.draw(&label).map_err(|error| failed(&error))?;
        }
        area.present().map_err(|error| failed(&error))?;
    }
    std::fs::write(file, svg).map_err(|error| failed(&error))
}
