//! Time and memory against the number of threads: a row of two panels for each line of cases.

use std::path::Path;

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::look::{LARGE, Look, legend, text};
use super::{Area, axis, picture};
use crate::case::{PEAK, TIME};
use crate::report::data::Data;
use crate::report::unit::Unit;

const PANEL: (u32, u32) = (430, 300);
const LEGEND: u32 = 170;
const MARGIN: u32 = 8;

/// Cases that differ only in the number of threads.
struct Line<'a> {
    name: &'a str,
    /// Threads and case, in the order of threads.
    cases: Vec<(u32, &'a str)>,
}

/// A picture with all lines, if there are some.
pub fn draw(data: &Data, out: &Path) -> Result<Vec<String>> {
    let mut lines: Vec<Line> = Vec::new();
    for case in &data.conditions.cases {
        let Some((name, threads)) = &case.threads else { continue };
        if data.best_peer(&case.name, TIME).is_none() {
            // Not measured yet, or every allocator failed.
            continue;
        }
        let place = lines.iter().position(|line| line.name == name).unwrap_or_else(|| {
            lines.push(Line { name, cases: Vec::new() });
            lines.len() - 1
        });
        lines[place].cases.push((*threads, &case.name));
    }
    lines.retain(|line| line.cases.len() > 1);
    for line in &mut lines {
        line.cases.sort();
    }
    if lines.is_empty() {
        return Ok(Vec::new());
    }
    // The peers, then the allocator under test in its modes.
    let mut names = data.peers();
    names.extend(data.modes());
    let least = 60 + 22 * names.len() as u32;
    let size = (2 * PANEL.0 + LEGEND, (PANEL.1 * lines.len() as u32 + MARGIN).max(least));
    Ok(vec![picture(out, "threads", size, |area| panels(area, data, &names, &lines))?])
}

fn panels(area: &Area, data: &Data, names: &[&str], lines: &[Line]) -> Result<()> {
    let (left, right) = area.split_horizontally(2 * PANEL.0);
    let panels = left.split_evenly((lines.len(), 2));
    for (line, pair) in lines.iter().zip(panels.chunks(2)) {
        panel(&pair[0], area, data, line, TIME, "time")?;
        panel(&pair[1], area, data, line, PEAK, "peak memory")?;
    }
    let corner = right.get_pixel_range();
    legend(area, names, (corner.0.start + 16, 40), true)
}

fn panel(
    panel: &Area,
    whole: &Area,
    data: &Data,
    line: &Line,
    figure: &str,
    what: &str,
) -> Result<()> {
    let mut names = data.peers();
    names.extend(data.modes().into_iter().rev());
    let points = |name: &str| -> Vec<(f64, f64)> {
        let median = |&(threads, case): &(u32, &str)| {
            Some((threads.into(), data.median(case, figure, name)?))
        };
        line.cases.iter().filter_map(median).collect()
    };
    let values = names.iter().flat_map(|name| points(name)).map(|point| point.1);
    let Some(range) = axis::around(values, 1.1) else { return Ok(()) };
    let unit = Unit::of(figure, range.0);
    let counts: Vec<f64> = line.cases.iter().map(|&(threads, _)| threads.into()).collect();
    let Some(ends) = axis::around(counts.iter().copied(), 1.15) else { return Ok(()) };
    let corner = panel.get_pixel_range();
    let title = format!("{}: {what}, {}", line.name, unit.name);
    text(whole, &title, (corner.0.start + 64, corner.1.start + 18), LARGE, HPos::Left)?;
    let mut chart = ChartBuilder::on(panel)
        .margin_top(34)
        .margin_right(12)
        .x_label_area_size(42)
        .y_label_area_size(64)
        .build_cartesian_2d(
            axis::at(ends, counts),
            axis::log((range.0 * unit.factor, range.1 * unit.factor), 9),
        )?;
    let mut mesh = chart.configure_mesh();
    axis::style(&mut mesh, "threads", "");
    let label = |value: &f64| axis::label(*value);
    mesh.x_label_formatter(&label).y_label_formatter(&label).draw()?;
    for name in names {
        let look = Look::of(name);
        let at = |(x, y)| chart.plotting_area().map_coordinate(&(x, y * unit.factor));
        let pixels: Vec<_> = points(name).into_iter().map(at).collect();
        look.line(whole, pixels.clone())?;
        for pixel in pixels {
            look.marker(whole, pixel)?;
        }
    }
    Ok(())
}
