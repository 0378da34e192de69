//! Formats numbers for people without allocating.

use core::fmt::{Display, Formatter, Result};

/// Shows `value` divided by `unit`, rounded to `digits` digits after the point. A format width
/// counts all characters. Formatting floating-point numbers instead would add 30 KiB of code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decimal {
    pub value: u64,
    pub unit: u64,
    pub digits: usize,
}

impl Display for Decimal {
    fn fmt(&self, f: &mut Formatter) -> Result {
        let &Self { value, unit, digits } = self;
        let scale = 10u128.pow(digits as u32);
        let rounded = (value as u128 * scale + unit as u128 / 2) / unit as u128;
        let (whole, fraction) = ((rounded / scale) as u64, (rounded % scale) as u64);
        let width = f.width().unwrap_or(0);
        if digits == 0 {
            return write!(f, "{whole:>width$}");
        }
        write!(f, "{whole:>0$}.{fraction:0digits$}", width.saturating_sub(digits + 1))
    }
}

/// `part` as a percentage of `of`.
pub(crate) fn percent(part: u64, of: u64, digits: usize) -> Decimal {
    Decimal { value: 100 * part, unit: of.max(1), digits }
}

/// Shows a number of bytes in B, KiB or MiB. A format width counts the number without its unit.
pub(crate) struct Bytes(pub u64);

impl Display for Bytes {
    fn fmt(&self, f: &mut Formatter) -> Result {
        let width = f.width().unwrap_or(0);
        let value = self.0;
        let (unit, name) = match value {
            0..1024 => return write!(f, "{value:>width$} B"),
            1024..0x10_0000 => (1 << 10, "KiB"),
            _ => (1 << 20, "MiB"),
        };
        write!(f, "{:>width$} {name}", Decimal { value, unit, digits: 1 })
    }
}

#[cfg(test)]
mod tests {
    use std::format;

    use super::*;

    #[test]
    fn numbers_for_people() {
        let decimal = |value, unit, digits| Decimal { value, unit, digits };
        assert_eq!(format!("{}", decimal(1_234_567, 1_000_000, 3)), "1.235");
        assert_eq!(format!("{:>8}", decimal(1_049, 1_000, 1)), "     1.0");
        assert_eq!(format!("{}|{}", decimal(1_050, 1_000, 1), decimal(1_500, 1_000, 0)), "1.1|2");
        assert_eq!(format!("{:>3}", percent(1, 3, 0)), " 33");
        assert_eq!(format!("{}", percent(5, 0, 1)), "500.0");
        assert_eq!(format!("{}", decimal(u64::MAX, 1, 2)), "18446744073709551615.00");
        assert_eq!(format!("{:>6}|{}", Bytes(1023), Bytes(1024)), "  1023 B|1.0 KiB");
        assert_eq!(format!("{:>8}", Bytes(3 << 19)), "     1.5 MiB");
    }
}
