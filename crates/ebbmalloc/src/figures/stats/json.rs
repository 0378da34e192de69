//! Writes statistics as JSON.

use core::fmt::{self, Write};

use super::declaration::{ClassStats, Stats};
use crate::figures::choice::Choice;
use crate::figures::process::ProcessName;

impl Stats {
    /// Writes the statistics as a JSON object, in one line: a member for each declared name, and
    /// `classes`, a list.
    pub fn write_json(&self, out: &mut impl Write) -> fmt::Result {
        self.json_to(out)
    }

    fn json_to(&self, out: &mut dyn Write) -> fmt::Result {
        let Choice { mode, id, why, others, no_percpu, care, kernel: [major, minor], .. } =
            self.choice;
        let version = crate::figures::VERSION;
        write!(out, r#"{{"version":"{version}","mode":"{mode}","why":"{why}","id":"{id}","#)?;
        write!(out, r#""others":"{others}","no_percpu":"{no_percpu}","care":"{care}","#)?;
        let ProcessName { program, id } = self.process;
        write!(out, r#""kernel":"{major}.{minor}","program":"{program}","pid":{id}"#)?;
        for statistic in Self::DECLARED {
            write!(out, ",\"{}\":{}", statistic.name, statistic.value(self))?;
        }
        out.write_str(",\"classes\":[")?;
        for (row, class) in self.used_classes().enumerate() {
            out.write_str(if row > 0 { ",{" } else { "{" })?;
            for (i, column) in ClassStats::DECLARED.iter().enumerate() {
                let comma = if i > 0 { "," } else { "" };
                write!(out, "{comma}\"{}\":{}", column.name, column.value(class))?;
            }
            out.write_str("}")?;
        }
        out.write_str("]}\n")
    }
}
