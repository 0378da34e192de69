//! Declares tunables, the constants of policy: each layer has its own in its `tuning.rs`.
//!
//! A constant that a file format or the kernel prescribes is not a tunable. It stands where it is
//! used.

use core::fmt::{Result as Written, Write};

/// A constant of policy: one row of `docs/tuning.md`.
pub struct Tunable {
    /// Its name in its layer's `tuning.rs`.
    pub name: &'static str,
    /// Its value, in its unit.
    pub value: u64,
    /// What the value counts.
    pub unit: &'static str,
    /// Its purpose, and the reason for its value.
    pub about: &'static str,
    /// The number of the decision behind it: a file in `docs/decisions`.
    pub decision: u32,
}

/// Declares the tunables of a layer as constants, and `ALL`, which describes them.
macro_rules! tunables {
    ($(
        $(#[doc = $about:literal])+
        $name:ident: $type:ty = $value:expr, $unit:literal, $decision:literal;
    )+) => {
        $($(#[doc = $about])+ pub(crate) const $name: $type = $value;)+

        /// The tunables of this layer.
        pub(crate) const ALL: &[crate::tuning::Tunable] = &[$(crate::tuning::Tunable {
            name: stringify!($name),
            value: $name as u64,
            unit: $unit,
            about: concat!($($about),+),
            decision: $decision,
        }),+];
    };
}
pub(crate) use tunables;

/// Writes a layer's tunables as a Markdown table: of each purpose and reason the first sentence,
/// and a decision in the first row of those in a row that it is behind.
pub(crate) fn document(tunables: &[Tunable], out: &mut impl Write) -> Written {
    out.write_str("name | value | what | decision\n---|--:|---|---\n")?;
    let mut last = 0;
    for &Tunable { name, value, unit, about, decision } in tunables {
        write!(out, "`{name}` | ")?;
        match unit {
            "bytes" => write_bytes(value, out)?,
            "units" => write_bytes(value * crate::size_class::UNIT as u64, out)?,
            _ => write!(out, "{value} {unit}")?,
        }
        let what = about.trim().split(". ").next().unwrap_or_default().trim_end_matches('.');
        write!(out, " | {what}")?;
        if decision != last {
            write!(out, " | {decision:04}")?;
        }
        last = decision;
        out.write_str("\n")?;
    }
    Ok(())
}

fn write_bytes(bytes: u64, out: &mut impl Write) -> Written {
    match bytes.trailing_zeros() {
        30.. => write!(out, "{} GiB", bytes >> 30),
        20.. => write!(out, "{} MiB", bytes >> 20),
        10.. => write!(out, "{} KiB", bytes >> 10),
        _ => write!(out, "{bytes} bytes"),
    }
}
