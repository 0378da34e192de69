//! Draws a flame graph as an SVG file.

use anyhow::{Context, Result};
use inferno::flamegraph::color::BasicPalette;
use inferno::flamegraph::{Direction, Options, Palette, TextTruncateDirection, from_lines};

use super::folded;
use super::table;
use super::view::{Measure, View};

pub fn write(view: &View, measure: Measure) -> Result<Vec<u8>> {
    let mut options = Options::default();
    options.title = table::headline(view, measure);
    options.subtitle = Some(table::facts(view));
    options.count_name = if measure.objects { "objects" } else { "bytes" }.into();
    options.name_type = "Function:".into();
    options.colors = Palette::Basic(BasicPalette::Mem);
    options.direction = Direction::Inverted;
    options.text_truncate_direction = TextTruncateDirection::Right;
    options.hash = true;
    let lines = folded::lines(view, measure);
    anyhow::ensure!(!lines.is_empty(), "there is nothing to draw: the profile has no stacks");
    let mut svg = Vec::new();
    from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)
        .context("cannot draw the flame graph")?;
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::example;

    #[test]
    fn functions_and_their_shares_are_drawn() {
        let svg = write(&View::of(example::profile()), Measure::default()).unwrap();
        let svg = String::from_utf8(svg).unwrap();
        assert!(svg.contains("server::cache::Cache::insert (62,914,560 bytes, 95.24%)"), "{svg}");
        let view = View::between(&example::earlier(), example::profile());
        let svg = String::from_utf8(write(&view, Measure::default()).unwrap()).unwrap();
        // The change is told at the frame that allocates.
        assert!(svg.contains("Vec&lt;T,A&gt;::push (62,914,560 bytes, 95.24%; +63.49%)"), "{svg}");
    }

    #[test]
    fn nothing_is_not_drawn() {
        let view = View::of(crate::profile::data::Profile::default());
        assert!(write(&view, Measure::default()).is_err());
    }
}
