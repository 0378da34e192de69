//! The metrics of a comparison, and the format of their values.

use crate::measure::Sample;

/// A quantity of which less is better.
pub struct Metric {
    /// Its name in JSON.
    pub key: &'static str,
    /// Its name in the table.
    pub label: &'static str,
    pub unit: Unit,
    pub of: fn(&Sample) -> Option<f64>,
}

#[derive(Clone, Copy)]
pub enum Unit {
    Seconds,
    Bytes,
    Count,
}

/// Names of the metrics that verdicts are about.
pub const TIME: &str = "wall_seconds";
pub const PEAK: &str = "peak_bytes";
pub const END: &str = "end_bytes";

pub const METRICS: [Metric; 11] = [
    metric(TIME, "wall time", Unit::Seconds, |run| Some(run.wall_seconds)),
    metric("user_seconds", "user CPU time", Unit::Seconds, |run| Some(run.user_seconds)),
    metric("system_seconds", "system CPU time", Unit::Seconds, |run| Some(run.system_seconds)),
    metric(PEAK, "peak memory", Unit::Bytes, |run| Some(run.peak_bytes as f64)),
    metric(END, "memory at end", Unit::Bytes, |run| run.end_bytes.map(|bytes| bytes as f64)),
    metric("minor_faults", "minor faults", Unit::Count, |run| Some(run.minor_faults as f64)),
    metric("major_faults", "major faults", Unit::Count, |run| Some(run.major_faults as f64)),
    metric("cycles", "cycles", Unit::Count, |run| run.cycles.map(|count| count as f64)),
    metric("instructions", "instructions", Unit::Count, |run| {
        run.instructions.map(|count| count as f64)
    }),
    metric("cache_misses", "cache misses", Unit::Count, |run| {
        run.cache_misses.map(|count| count as f64)
    }),
    metric("branch_misses", "branch misses", Unit::Count, |run| {
        run.branch_misses.map(|count| count as f64)
    }),
];

const fn metric(
    key: &'static str,
    label: &'static str,
    unit: Unit,
    of: fn(&Sample) -> Option<f64>,
) -> Metric {
    Metric { key, label, unit, of }
}

/// Formats all values of one metric alike, so that they can be compared at a glance: in the unit,
/// and with the decimals, that give the largest of them three digits.
pub struct Scale {
    unit: &'static str,
    size: f64,
    decimals: usize,
}

impl Scale {
    pub fn new(unit: Unit, largest: f64) -> Self {
        const KIB: f64 = 1024.0;
        let units: &[(&str, f64)] = match unit {
            Unit::Seconds => &[(" s", 1.0), (" ms", 1e-3), (" µs", 1e-6)],
            Unit::Bytes => {
                &[(" GiB", KIB * KIB * KIB), (" MiB", KIB * KIB), (" KiB", KIB), (" B", 1.0)]
            }
            Unit::Count => &[(" G", 1e9), (" M", 1e6), (" k", 1e3), ("", 1.0)],
        };
        // A value from 0.9995 on would be shown as 1.000 of the larger unit.
        let (unit, size) = *units
            .iter()
            .find(|(_, size)| largest >= size * 0.9995)
            .unwrap_or(&units[units.len() - 1]);
        let decimals = match largest / size {
            _ if size == 1.0 && unit != " s" => 0,
            value if value < 9.995 => 2,
            value if value < 99.95 => 1,
            _ => 0,
        };
        Self { unit, size, decimals }
    }

    /// A value without its unit.
    pub fn number(&self, value: f64) -> String {
        format!("{:.*}", self.decimals, value / self.size)
    }

    /// A value with its unit.
    pub fn show(&self, value: f64) -> String {
        format!("{}{}", self.number(value), self.unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_three_digits_and_a_fitting_unit() {
        let show = |unit, value| Scale::new(unit, value).show(value);
        assert_eq!(show(Unit::Seconds, 2.3149), "2.31 s");
        assert_eq!(show(Unit::Seconds, 0.0149), "14.9 ms");
        assert_eq!(show(Unit::Seconds, 0.99961), "1.00 s");
        assert_eq!(show(Unit::Seconds, 0.0), "0.00 µs");
        assert_eq!(show(Unit::Seconds, 251.0), "251 s");
        assert_eq!(show(Unit::Bytes, 175.0 * 1024.0 * 1024.0), "175 MiB");
        assert_eq!(show(Unit::Bytes, 512.0), "512 B");
        assert_eq!(show(Unit::Count, 12_345.0), "12.3 k");
        assert_eq!(show(Unit::Count, 0.0), "0");
        assert_eq!(show(Unit::Count, 7.0), "7");
    }

    #[test]
    fn values_of_one_metric_share_unit_and_decimals() {
        let scale = Scale::new(Unit::Seconds, 2.31);
        assert_eq!((scale.show(2.31), scale.show(0.0579)), ("2.31 s".into(), "0.06 s".into()));
    }
}
