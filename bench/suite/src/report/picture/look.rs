//! Gives each allocator one look in all pictures, and draws text.
//!
//! Colours are those of Okabe and Ito, told apart by colour-blind eyes too; where they repeat,
//! the shape differs. The allocator under test has a colour of its own and is drawn last and
//! larger.

use allocators::PEERS;
use anyhow::Result;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Area, Pixel};

pub const GRID: RGBColor = RGBColor(225, 225, 225);
/// Heights of letters, in pixels.
pub const SMALL: i32 = 13;
pub const LARGE: i32 = 16;
/// About the width of a letter of that height.
pub const LETTER: f64 = 0.55;

const OURS: RGBColor = RGBColor(213, 94, 0);
const COLOURS: [RGBColor; 6] = [
    RGBColor(90, 90, 90),
    RGBColor(0, 114, 178),
    RGBColor(86, 180, 233),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(190, 150, 0),
];

#[derive(Clone, Copy)]
enum Shape {
    Circle,
    Square,
    Triangle,
}

const SHAPES: [Shape; 3] = [Shape::Circle, Shape::Square, Shape::Triangle];

pub struct Look {
    colour: RGBColor,
    shape: Shape,
    size: i32,
    width: u32,
    /// Length of the dashes of its line; none: no gaps.
    dash: Option<i32>,
}

impl Look {
    /// Always the same for a name, with any others in the picture.
    pub fn of(name: &str) -> Self {
        match PEERS.iter().position(|peer| peer.name == name) {
            Some(place) => Self {
                colour: COLOURS[place % COLOURS.len()],
                shape: SHAPES[place / COLOURS.len() % SHAPES.len()],
                size: 4,
                width: 1,
                dash: None,
            },
            // A guest of a few cases.
            None if !name.starts_with("ebbmalloc") => {
                Self { colour: BLACK, shape: Shape::Triangle, size: 4, width: 1, dash: None }
            }
            None => {
                let ours =
                    Self { colour: OURS, shape: Shape::Circle, size: 6, width: 3, dash: None };
                match name.split_once('-') {
                    None => ours,
                    // Its forced modes, `NAME-MODE`, differ by their dashes.
                    Some((_, mode)) => Self {
                        dash: Some(match mode {
                            "percpu" => 14,
                            "thread" => 7,
                            _ => 2,
                        }),
                        size: 4,
                        width: 2,
                        ..ours
                    },
                }
            }
        }
    }

    pub fn marker(&self, area: &Area, (x, y): Pixel) -> Result<()> {
        let (size, fill) = (self.size, self.colour.filled());
        match self.shape {
            Shape::Circle => area.draw(&Circle::new((x, y), size, fill)),
            Shape::Square => {
                area.draw(&Rectangle::new([(x - size, y - size), (x + size, y + size)], fill))
            }
            Shape::Triangle => area.draw(&TriangleMarker::new((x, y), size + 2, fill)),
        }?;
        Ok(())
    }

    pub fn line(&self, area: &Area, points: Vec<Pixel>) -> Result<()> {
        let stroke = self.colour.stroke_width(self.width);
        match self.dash {
            None => area.draw(&PathElement::new(points, stroke)),
            Some(dash) => area.draw(&DashedPathElement::new(points, dash, 4, stroke)),
        }?;
        Ok(())
    }
}

/// The names one below the other, beginning there; with lines where the picture has lines.
pub fn legend(area: &Area, names: &[&str], (x, y): Pixel, lines: bool) -> Result<()> {
    for (name, row) in names.iter().zip(0..) {
        let (look, y) = (Look::of(name), y + row * 22);
        if lines {
            look.line(area, vec![(x, y), (x + 28, y)])?;
        }
        look.marker(area, (x + 14, y))?;
        text(area, name, (x + 36, y), SMALL, HPos::Left)?;
    }
    Ok(())
}

/// Text beside a point, in the middle of its height.
pub fn text(area: &Area, text: &str, at: Pixel, size: i32, side: HPos) -> Result<()> {
    let style = ("sans-serif", size).into_font().color(&BLACK).pos(Pos::new(side, VPos::Center));
    area.draw(&Text::new(text.to_string(), at, style))?;
    Ok(())
}
