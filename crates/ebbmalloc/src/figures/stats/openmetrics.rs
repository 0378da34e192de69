//! Writes statistics as OpenMetrics text, version 1.0, or in the older format of Prometheus, which
//! may be appended to a page of other metrics. Prometheus and similar programs read both.
//!
//! A name is the declared one with the prefix `ebbmalloc_`, or `ebbmalloc_class_` and the label
//! `block_bytes`. Times are in seconds, since the format demands base units. Declarations must need
//! no escapes in quoted strings and lines of help; a test checks that.

use core::fmt::{self, Write};

use super::declaration::{ClassStats, Kind, Statistic, Stats, Unit};
use crate::figures::choice::Choice;

impl Stats {
    /// Writes the statistics as OpenMetrics text, including the final `# EOF`.
    pub fn write_openmetrics(&self, out: &mut impl Write) -> fmt::Result {
        self.metrics_to(out, true)
    }

    /// Writes the statistics as text in the older format of Prometheus, version 0.0.4. It has
    /// gauges and counters only and no end, so it can be appended to a page that exists.
    pub fn write_prometheus(&self, out: &mut impl Write) -> fmt::Result {
        self.metrics_to(out, false)
    }

    fn metrics_to(&self, out: &mut dyn Write, is_open: bool) -> fmt::Result {
        let (version, Choice { mode, why, id, care, .. }) = (crate::figures::VERSION, self.choice);
        let (name, kind) = if is_open { ("", "info") } else { ("_info", "gauge") };
        writeln!(out, "# TYPE ebbmalloc{name} {kind}")?;
        writeln!(out, "# HELP ebbmalloc{name} The allocator, and its front end.")?;
        write!(out, r#"ebbmalloc_info{{version="{version}",mode="{mode}","#)?;
        write!(out, r#"why="{why}",id="{id}",care="{care}","#)?;
        writeln!(out, r#"program="{}",pid="{}"}} 1"#, self.process.program, self.process.id)?;
        for statistic in Self::DECLARED {
            let family = Family { prefix: "ebbmalloc", statistic, is_open };
            family.head(out)?;
            family.sample(out, format_args!(""), self)?;
        }
        // The first, `block_bytes`, is the label of the others.
        for statistic in &ClassStats::DECLARED[1..] {
            let family = Family { prefix: "ebbmalloc_class", statistic, is_open };
            family.head(out)?;
            for class in self.used_classes() {
                family.sample(
                    out,
                    format_args!("{{block_bytes=\"{}\"}}", class.block_bytes),
                    class,
                )?;
            }
        }
        if is_open { out.write_str("# EOF\n") } else { Ok(()) }
    }
}

/// A metric family: a statistic under its name in the format, without the suffix of its samples.
struct Family<'a, S> {
    prefix: &'static str,
    statistic: &'a Statistic<S>,
    /// Whether the format is OpenMetrics.
    is_open: bool,
}

impl<S> Family<'_, S> {
    /// Writes the lines before the samples.
    fn head(&self, out: &mut dyn Write) -> fmt::Result {
        // OpenMetrics names families, the older format samples.
        let total = if self.is_open { "" } else { self.total() };
        writeln!(out, "# TYPE {self}{total} {}", self.statistic.kind.name())?;
        match self.statistic.unit {
            Unit::Bytes if self.is_open => writeln!(out, "# UNIT {self} bytes")?,
            Unit::Micros if self.is_open => writeln!(out, "# UNIT {self} seconds")?,
            _ => {}
        }
        writeln!(out, "# HELP {self}{total} {}", self.statistic.help())
    }

    /// The end of a sample's name.
    fn total(&self) -> &'static str {
        if self.statistic.kind == Kind::Counter { "_total" } else { "" }
    }

    /// Writes one sample.
    fn sample(&self, out: &mut dyn Write, labels: fmt::Arguments, of: &S) -> fmt::Result {
        let total = self.total();
        let value = self.statistic.value(of);
        match self.statistic.unit {
            Unit::Micros => {
                let (seconds, micros) = (value / 1_000_000, value % 1_000_000);
                writeln!(out, "{self}{total}{labels} {seconds}.{micros:06}")
            }
            Unit::Bytes | Unit::Count => writeln!(out, "{self}{total}{labels} {value}"),
        }
    }
}

impl<S> fmt::Display for Family<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { prefix, statistic, .. } = self;
        match statistic.name.strip_suffix("_us") {
            Some(name) => write!(f, "{prefix}_{name}_seconds"),
            None => write!(f, "{prefix}_{}", statistic.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::string::String;

    use super::*;

    fn sample() -> String {
        page(Stats::write_openmetrics)
    }

    fn page(write: impl Fn(&Stats, &mut String) -> fmt::Result) -> String {
        let mut stats = Stats::EMPTY;
        stats.choice = Choice { mode: "slot", why: "a reason", care: "harden", ..Choice::UNSET };
        (stats.live_bytes, stats.purged_bytes, stats.purges) = (4096, 1 << 40, 3);
        stats.user_us = 12_000_034;
        let class =
            ClassStats { block_bytes: 48, spans: 2, live: 7, refills: 5, ..ClassStats::EMPTY };
        stats.classes[3] = class;
        let mut text = String::new();
        write(&stats, &mut text).unwrap();
        text
    }

    #[test]
    fn gauges_counters_times_and_classes() {
        let text = sample();
        for lines in [
            "# TYPE ebbmalloc info\n",
            "ebbmalloc_info{version=\"",
            ",mode=\"slot\",why=\"a reason\",id=\"\",care=\"harden\",program=\"\",pid=\"0\"} 1\n",
            "# TYPE ebbmalloc_live_bytes gauge\n# UNIT ebbmalloc_live_bytes bytes\n\
             # HELP ebbmalloc_live_bytes In ",
            "\nebbmalloc_live_bytes 4096\n",
            "# TYPE ebbmalloc_purged_bytes counter\n",
            "\nebbmalloc_purged_bytes_total 1099511627776\n",
            "# TYPE ebbmalloc_purges counter\n# HELP ebbmalloc_purges ",
            "\nebbmalloc_purges_total 3\n",
            "# UNIT ebbmalloc_user_seconds seconds\n",
            "\nebbmalloc_user_seconds_total 12.000034\n",
            "\nebbmalloc_class_live{block_bytes=\"48\"} 7\n",
            "\nebbmalloc_class_refills_total{block_bytes=\"48\"} 5\n",
        ] {
            assert!(text.contains(lines), "no {lines:?} in\n{text}");
        }
        assert_eq!(text.matches("# EOF").count(), 1);
        assert!(text.ends_with("\n# EOF\n"));
    }

    #[test]
    fn the_older_format_can_be_appended() {
        let text = page(Stats::write_prometheus);
        for lines in [
            "# TYPE ebbmalloc_info gauge\n# HELP ebbmalloc_info The ",
            "\n# TYPE ebbmalloc_live_bytes gauge\n# HELP ebbmalloc_live_bytes In ",
            "\n# TYPE ebbmalloc_purges_total counter\n# HELP ebbmalloc_purges_total ",
            "\nebbmalloc_purges_total 3\n",
            "\n# TYPE ebbmalloc_user_seconds_total counter\n",
            "\n# TYPE ebbmalloc_class_live gauge\n",
        ] {
            assert!(text.contains(lines), "no {lines:?} in\n{text}");
        }
        for other in ["# EOF", "# UNIT", " info\n"] {
            assert!(!text.contains(other), "{other:?} in\n{text}");
        }
        let samples = |text: &str| -> std::vec::Vec<String> {
            text.lines().filter(|line| !line.starts_with('#')).map(Into::into).collect()
        };
        assert_eq!(samples(&text), samples(&sample()));
    }

    #[test]
    fn every_statistic_is_a_family_with_its_unit_in_its_name() {
        let text = sample();
        let families = Stats::DECLARED.len() + ClassStats::DECLARED.len();
        assert_eq!(
            text.matches("# TYPE ").count(),
            families,
            "the info metric stands for block_bytes"
        );
        assert_eq!(text.matches("# HELP ").count(), families);
        for line in text.lines().filter_map(|line| line.strip_prefix("# UNIT ")) {
            let (family, unit) = line.split_once(' ').unwrap();
            assert!(family.ends_with(unit), "{line}");
        }
    }

    #[test]
    fn nothing_needs_an_escape() {
        let of_all = Stats::DECLARED.iter().map(|statistic| statistic.help());
        let help = of_all.chain(ClassStats::DECLARED.iter().map(|statistic| statistic.help()));
        for text in help {
            assert!(!text.contains(['\\', '"', '\n']), "{text}");
        }
    }
}
