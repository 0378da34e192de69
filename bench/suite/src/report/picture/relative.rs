//! A figure relative to the best peer: a row for each case, a dot for each allocator.

use std::path::Path;

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::look::{GRID, LARGE, LETTER, Look, SMALL, legend, text};
use super::{Area, axis, picture};
use crate::report::data::Data;

const ROW: i32 = 20;
const WIDTH: i32 = 1000;
const LEGEND: i32 = 160;
const TOP: i32 = 40;
/// Dots farther out lie on the right edge.
const FAR: f64 = 20.0;

struct Row<'a> {
    case: &'a str,
    noisy: bool,
    /// Allocator and ratio to the best peer.
    dots: Vec<(&'a str, f64)>,
}

pub fn draw(data: &Data, figure: &str, name: &str, out: &Path) -> Result<Option<String>> {
    let rows: Vec<_> = data.cases().filter_map(|case| row(data, case, figure)).collect();
    let ratios = rows.iter().flat_map(|row| row.dots.iter().map(|dot| dot.1.min(FAR)));
    let Some(range) = axis::around(ratios, 1.06) else { return Ok(None) };
    let names = data.everyone();
    let height = TOP + 80 + (rows.len() as i32 * ROW).max(names.len() as i32 * 22);
    picture(out, name, (WIDTH as u32, height as u32), |area| {
        chart(area, &rows, &names, range, name)
    })
    .map(Some)
}

fn row<'a>(data: &'a Data, case: &'a str, figure: &str) -> Option<Row<'a>> {
    let best = data.best_peer(case, figure)?;
    let ratio = |name: &'a str| Some((name, data.ratio(case, figure, name, best)?.ratio));
    let noisy = [best, data.ours()].iter().any(|name| data.noisy(case, figure, name));
    Some(Row { case, noisy, dots: data.everyone().into_iter().filter_map(ratio).collect() })
}

fn chart(area: &Area, rows: &[Row], names: &[&str], range: (f64, f64), what: &str) -> Result<()> {
    let longest = rows.iter().map(|row| row.case.len()).max().unwrap_or_default() + 2;
    let labels = (longest as f64 * SMALL as f64 * LETTER) as i32 + 16;
    let far = rows.iter().any(|row| row.dots.iter().any(|dot| dot.1 > FAR));
    let far = if far { format!("; on the right edge: {FAR} and more") } else { String::new() };
    let title = format!("{what} relative to the best peer (left is better; ~ noisy{far})");
    text(area, &title, (labels, 18), LARGE, HPos::Left)?;
    let mut chart = ChartBuilder::on(area)
        .margin_top(TOP)
        .margin_right(LEGEND)
        .top_x_label_area_size(24)
        .x_label_area_size(24)
        .y_label_area_size(labels)
        .build_cartesian_2d(axis::log(range, 12), rows.len() as f64..0.0)?;
    let mut mesh = chart.configure_mesh();
    axis::style(&mut mesh, "", "");
    mesh.disable_y_mesh().y_labels(0).x_label_formatter(&|value| axis::label(*value)).draw()?;

    let plot = chart.plotting_area();
    let at = |ratio: f64, row: usize| {
        plot.map_coordinate(&(ratio.clamp(range.0, range.1), row as f64 + 0.5))
    };
    let left = at(range.0, 0).0;
    let right = at(range.1, 0).0;
    for (index, row) in rows.iter().enumerate() {
        let y = at(1.0, index).1;
        area.draw(&PathElement::new(vec![(left, y), (right, y)], GRID))?;
        let label = format!("{}{}", if row.noisy { "~ " } else { "" }, row.case);
        text(area, &label, (left - 8, y), SMALL, HPos::Right)?;
    }
    let (x, top) = plot.map_coordinate(&(1.0, 0.0));
    let (_, bottom) = plot.map_coordinate(&(1.0, rows.len() as f64));
    area.draw(&PathElement::new(vec![(x, top), (x, bottom)], BLACK))?;
    // The allocator under test comes last and so lies above the others.
    for name in names {
        for (index, row) in rows.iter().enumerate() {
            if let Some((_, ratio)) = row.dots.iter().find(|dot| dot.0 == *name) {
                Look::of(name).marker(area, at(ratio.min(FAR), index))?;
            }
        }
    }
    legend(area, names, (right + 16, top + 10), false)
}
