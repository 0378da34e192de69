//! Logarithmic axes with ticks at round numbers, and the style of all axes.

use plotters::coord::combinators::WithKeyPoints;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;

use super::look::{GRID, SMALL};

pub type Log = WithKeyPoints<LogCoord<f64>>;

/// From the least to the greatest value and a little beyond. None without values.
pub fn around(values: impl IntoIterator<Item = f64>, beyond: f64) -> Option<(f64, f64)> {
    let positive = values.into_iter().filter(|value| *value > 0.0);
    let (low, high) = positive.fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), value| {
        (low.min(value), high.max(value))
    });
    (high > 0.0).then_some((low / beyond, high * beyond))
}

/// A logarithmic axis with at most about `most` ticks.
pub fn log((from, to): (f64, f64), most: usize) -> Log {
    at((from, to), ticks(from, to, most))
}

/// A logarithmic axis with these ticks.
pub fn at((from, to): (f64, f64), ticks: Vec<f64>) -> Log {
    let axis: LogCoord<f64> = (from..to).log_scale().into();
    axis.with_key_points(ticks)
}

/// Round numbers, as dense as leaves each its share of the axis.
fn ticks(from: f64, to: f64, most: usize) -> Vec<f64> {
    const STEPS: [&[f64]; 5] = [
        &[
            1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0, 2.2, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0,
            8.0, 9.0,
        ],
        &[1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0],
        &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
        &[1.0, 2.0, 5.0],
        &[1.0],
    ];
    let least = (to / from).ln() / most as f64;
    let of = |steps: &[f64]| -> Vec<f64> {
        let decades = from.log10().floor() as i32..=to.log10().ceil() as i32;
        let all = decades.flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
        all.filter(|tick| (from..=to).contains(tick)).collect()
    };
    let fits = |ticks: &Vec<f64>| ticks.windows(2).all(|pair| (pair[1] / pair[0]).ln() >= least);
    STEPS.iter().map(|steps| of(steps)).find(fits).unwrap_or_else(|| of(&[1.0]))
}

/// Without needless zeros.
pub fn label(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

/// Grid, ticks and titles as in all pictures.
pub fn style<'a, 'b, X, Y, XT, YT, DB>(
    mesh: &mut plotters::chart::MeshStyle<'a, 'b, X, Y, DB>,
    x_title: &str,
    y_title: &str,
) where
    X: Ranged<ValueType = XT> + ValueFormatter<XT>,
    Y: Ranged<ValueType = YT> + ValueFormatter<YT>,
    DB: DrawingBackend,
{
    mesh.bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(GRID)
        .label_style(("sans-serif", SMALL))
        .axis_desc_style(("sans-serif", SMALL))
        .x_desc(x_title)
        .y_desc(y_title);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_leave_room() {
        let shown = |from, to, most| {
            ticks(from, to, most).into_iter().map(label).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown(0.5, 2.0, 8), "0.5 0.6 0.8 1 1.2 1.5 2");
        assert_eq!(shown(0.95, 1.25, 8), "1 1.1 1.2");
        assert_eq!(shown(0.9, 1000.0, 6), "1 10 100 1000");
        assert_eq!(around([2.0, 8.0, 0.0], 2.0), Some((1.0, 16.0)));
        assert_eq!(around([], 2.0), None);
    }
}
