//! Figures in readable units.

/// How a row of figures is shown.
pub struct Unit {
    pub name: String,
    /// The figure in this unit is the figure times this.
    pub factor: f64,
}

impl Unit {
    /// Chosen by the figure's name, and so that `typical` is a handy number.
    pub fn of(figure: &str, typical: f64) -> Self {
        let scaled = |units: &[(&str, f64)]| {
            let fits = |&&(_, factor): &&(&str, f64)| typical * factor >= 1.0;
            let &(name, factor) = units.iter().find(fits).unwrap_or(&units[units.len() - 1]);
            Self { name: name.into(), factor }
        };
        if let Some(rate) = figure.strip_suffix("_per_s") {
            let what = rate.rsplit('_').next().unwrap_or(rate);
            let what = if what == "mib" { "MiB" } else { what };
            Self { name: format!("{what}/s"), factor: 1.0 }
        } else if figure.ends_with("_s") {
            scaled(&[("s", 1.0), ("ms", 1e3), ("µs", 1e6), ("ns", 1e9)])
        } else if figure.ends_with("_kib") {
            scaled(&[("GiB", 1.0 / 1048576.0), ("MiB", 1.0 / 1024.0), ("KiB", 1.0)])
        } else {
            Self { name: String::new(), factor: 1.0 }
        }
    }

    pub fn show(&self, value: f64) -> String {
        three_digits(value * self.factor)
    }
}

/// With three significant digits, or all before the point.
fn three_digits(value: f64) -> String {
    let digits = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_fit_the_figures() {
        let show = |figure, value| {
            let unit = Unit::of(figure, value);
            format!("{} {}", unit.show(value), unit.name)
        };
        assert_eq!(show("time_s", 1.2345), "1.23 s");
        assert_eq!(show("time_s", 0.0123), "12.3 ms");
        assert_eq!(show("time_s", 0.0), "0.000 ns");
        assert_eq!(show("peak_kib", 512.0), "512 KiB");
        assert_eq!(show("after_1_kib", 204800.0), "200 MiB");
        assert_eq!(show("mib_per_s", 12.0), "12.0 MiB/s");
        assert_eq!(show("requests_per_s", 12345.0), "12345 requests/s");
        assert_eq!(show("share", 0.5), "0.500 ");
    }
}
