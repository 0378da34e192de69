//! The page heap's record of a run. The region has a table of them; `pages.rs` keeps them.

/// The page heap's record of a unit. Those of a run's first and last unit are kept up to date;
/// between them anything may stand.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Run {
    pub(crate) state: State,
    /// Units in the run; in the first and the last record of a free run.
    pub(crate) units: u32,
    /// Children in the tree of free runs: the unit where each begins, 0 for none.
    pub(crate) left: u32,
    pub(crate) right: u32,
}

/// What a run is used for. All zero bytes are a unit that was never used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub(crate) enum State {
    #[default]
    InUse,
    /// Free, resident, with old contents.
    Dirty,
    /// Free, not resident, reads as zero.
    Clean,
}
