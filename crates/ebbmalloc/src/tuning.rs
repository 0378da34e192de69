//! Declares tunables, the constants of policy: each layer has its own in its `tuning.rs`.
//!
//! A constant that a file format or the kernel prescribes is not a tunable. It stands where it is
//! used.

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
