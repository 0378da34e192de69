//! Writes statistics as text for people.

use core::fmt::{self, Display, Write};

use super::declaration::{ClassStats, Stats, Unit};
use crate::figures::numbers::{Bytes, Decimal};

impl Stats {
    /// Writes the statistics as text: one line each, and a table of the size classes in use.
    pub fn write_text(&self, out: &mut impl Write) -> fmt::Result {
        self.text_to(out)
    }

    fn text_to(&self, out: &mut dyn Write) -> fmt::Result {
        writeln!(out, "{}{}", self.choice, self.process)?;
        for statistic in Self::DECLARED {
            writeln!(
                out,
                "{:<20} {}",
                statistic.name,
                Shown(statistic.unit, statistic.value(self))
            )?;
        }
        for (i, column) in ClassStats::DECLARED.iter().enumerate() {
            write!(out, "{}{:>WIDTH$}", space(i), column.name)?;
        }
        out.write_str("\n")?;
        for class in self.used_classes() {
            for (i, column) in ClassStats::DECLARED.iter().enumerate() {
                write!(out, "{}{:>WIDTH$}", space(i), column.value(class))?;
            }
            out.write_str("\n")?;
        }
        Ok(())
    }
}

/// Width of a column of the table, in characters.
const WIDTH: usize = 11;

fn space(column: usize) -> &'static str {
    if column > 0 { " " } else { "" }
}

/// Shows a value with its unit.
struct Shown(Unit, u64);

impl Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self(unit, value) = *self;
        match unit {
            Unit::Count => write!(f, "{value:>12}"),
            Unit::Micros => write!(f, "{:>12} s", Decimal { value, unit: 1_000_000, digits: 3 }),
            Unit::Bytes => write!(f, "{:>12}", Bytes(value)),
        }
    }
}
