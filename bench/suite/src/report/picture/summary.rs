//! All cases in one picture: mean time against mean memory, a dot for each allocator.

use std::path::Path;

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::look::{LARGE, LETTER, Look, SMALL, text};
use super::{Area, Pixel, axis, picture};
use crate::case::{PEAK, TIME};
use crate::report::data::{BASE, Data};
use crate::report::means::Compared;

const SIZE: (u32, u32) = (760, 560);

/// None without means.
pub fn draw(data: &Data, out: &Path) -> Result<Option<String>> {
    let Some(compared) = Compared::of(data).filter(|compared| !compared.cases.is_empty()) else {
        return Ok(None);
    };
    let over_all = |figure| compared.means(data, figure).swap_remove(0).ratios;
    let (time, memory) = (over_all(TIME), over_all(PEAK));
    let points: Vec<_> = time.iter().zip(memory).map(|(t, m)| (t.mean, m.mean)).collect();
    let title = format!("Geometric means of {} cases, relative to {BASE}", compared.cases.len());
    picture(out, "summary", SIZE, |area| chart(area, &title, &compared.allocators, &points))
        .map(Some)
}

fn chart(area: &Area, title: &str, names: &[&str], points: &[(f64, f64)]) -> Result<()> {
    let range = |values: Vec<f64>| axis::around(values, 1.12).unwrap_or((0.5, 2.0));
    let times = range(points.iter().map(|point| point.0).collect());
    let memories = range(points.iter().map(|point| point.1).collect());
    text(area, title, (64, 20), LARGE, HPos::Left)?;
    let mut chart = ChartBuilder::on(area)
        .margin_top(44)
        .margin_left(10)
        .margin_right(24)
        .margin_bottom(8)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(axis::log(times, 10), axis::log(memories, 10))?;
    let mut mesh = chart.configure_mesh();
    axis::style(&mut mesh, "time (left is better)", "peak memory (down is better)");
    let label = |value: &f64| axis::label(*value);
    mesh.x_label_formatter(&label).y_label_formatter(&label).draw()?;
    let plot = chart.plotting_area();
    let pixels: Vec<_> = points.iter().map(|point| plot.map_coordinate(point)).collect();
    for (name, &pixel) in names.iter().zip(&pixels) {
        Look::of(name).marker(area, pixel)?;
    }
    let (columns, rows) = plot.get_pixel_range();
    let inside = Box { left: columns.start, right: columns.end, top: rows.start, bottom: rows.end };
    for (name, place) in names.iter().zip(places(names, &pixels, &inside)) {
        text(area, name, place, SMALL, HPos::Left)?;
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Box {
    left: i32,
    right: i32,
    top: i32,
    bottom: i32,
}

impl Box {
    fn meets(&self, other: &Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    fn lies_in(&self, outer: &Self) -> bool {
        self.left >= outer.left
            && self.right <= outer.right
            && self.top >= outer.top
            && self.bottom <= outer.bottom
    }
}

/// Where each dot's label begins: the nearest place around it that no dot and no earlier label
/// takes.
fn places(names: &[&str], dots: &[Pixel], inside: &Box) -> Vec<Pixel> {
    let around = |&(x, y): &Pixel| Box { left: x - 7, right: x + 7, top: y - 7, bottom: y + 7 };
    let mut taken: Vec<_> = dots.iter().map(around).collect();
    let mut places = Vec::new();
    for (name, &(x, y)) in names.iter().zip(dots) {
        let width = (name.len() as f64 * SMALL as f64 * LETTER) as i32 + 4;
        let free = (0..12).flat_map(|ring| {
            let (out, down) = (10 + 3 * ring, 6 * ring);
            [
                (out, 0),
                (-out - width, 0),
                (out, down),
                (out, -down),
                (-out - width, down),
                (-out - width, -down),
                (-width / 2, 14 + down),
                (-width / 2, -14 - down),
            ]
        });
        let label = |(right, down): Pixel| Box {
            left: x + right,
            right: x + right + width,
            top: y + down - SMALL / 2 - 1,
            bottom: y + down + SMALL / 2 + 1,
        };
        let fits =
            |label: &Box| label.lies_in(inside) && !taken.iter().any(|other| other.meets(label));
        let chosen = free.map(label).find(fits).unwrap_or_else(|| label((10, 0)));
        taken.push(chosen);
        places.push((chosen.left, (chosen.top + chosen.bottom) / 2));
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_crowded_dots_do_not_meet() {
        let names = ["mimalloc2", "mimalloc3", "jemalloc", "jemalloc-debian", "snmalloc"];
        let dots = [(200, 200), (204, 202), (206, 198), (210, 205), (202, 208)];
        let inside = Box { left: 0, right: 400, top: 0, bottom: 400 };
        let places = places(&names, &dots, &inside);
        for (index, &(x, y)) in places.iter().enumerate() {
            for &(other_x, other_y) in &places[..index] {
                assert!((y - other_y).abs() > SMALL || (x - other_x).abs() > 50, "{places:?}");
            }
        }
    }
}
