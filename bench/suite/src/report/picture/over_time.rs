//! Resident memory over time, a line for each allocator; live memory as an area.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::look::{LARGE, Look, legend, text};
use super::{Area, axis, picture};
use crate::case::Series;
use crate::report::data::Data;
use crate::report::unit::Unit;

const SIZE: (u32, u32) = (1000, 480);
const LEGEND: i32 = 160;
const LIVE: RGBColor = RGBColor(222, 222, 222);

/// A picture for each case that has such points.
pub fn draw(data: &Data, out: &Path) -> Result<Vec<String>> {
    let drawn = data.cases().filter_map(|case| {
        let name = format!("memory-{}", case.replace('/', "-"));
        let lines = data.series.get(case)?;
        Some(picture(out, &name, SIZE, |area| chart(area, data, case, lines)))
    });
    drawn.collect()
}

fn chart(area: &Area, data: &Data, case: &str, lines: &BTreeMap<String, Series>) -> Result<()> {
    let (names, ours) = (data.everyone(), data.ours());
    let points = || lines.values().flatten();
    let seconds = points().map(|point| point.0).fold(0.0, f64::max);
    let kib = points().map(|point| point.1.max(point.2)).fold(0.0, f64::max);
    let unit = Unit::of("_kib", kib);
    let title =
        format!("{case}: resident memory over time (grey: live memory in the run of {ours})");
    text(area, &title, (70, 18), LARGE, HPos::Left)?;
    let mut chart = ChartBuilder::on(area)
        .margin_top(40)
        .margin_left(10)
        .margin_right(LEGEND)
        .margin_bottom(8)
        .x_label_area_size(44)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..seconds.max(1e-3), 0.0..kib * unit.factor * 1.05)?;
    let plot = chart.plotting_area().strip_coord_spec();
    let corners = plot.get_pixel_range();
    let mut mesh = chart.configure_mesh();
    axis::style(&mut mesh, "seconds", &unit.name);
    let label = |value: &f64| axis::label(*value);
    mesh.x_label_formatter(&label).y_label_formatter(&label).draw()?;

    let at = |x: f64, y: f64| chart.plotting_area().map_coordinate(&(x, y * unit.factor));
    // Each run has its own pace: live memory belongs to the line of the one that it was seen in.
    if let Some(series) = lines.get(ours) {
        let top = series.iter().map(|&(x, _, live)| at(x, live));
        let end = series.last().map_or(0.0, |point| point.0);
        let ends = [at(end, 0.0), at(0.0, 0.0)];
        area.draw(&Polygon::new(top.chain(ends).collect::<Vec<_>>(), LIVE.filled()))?;
    }
    let measured: Vec<_> = names.iter().copied().filter(|name| lines.contains_key(*name)).collect();
    for (place, name) in measured.iter().enumerate() {
        let look = Look::of(name);
        let pixels: Vec<_> = lines[*name].iter().map(|&(x, resident, _)| at(x, resident)).collect();
        // Some marks along the line, not at the same places as the others'.
        let step = (pixels.len() / 6).max(1);
        let first = place * step / measured.len();
        look.line(area, pixels.clone())?;
        for &pixel in pixels.iter().skip(first).step_by(step) {
            look.marker(area, pixel)?;
        }
    }
    legend(area, &measured, (corners.0.end + 16, corners.1.start + 10), true)
}
