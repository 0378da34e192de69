//! Switches profiling in another process on and off, and reads the profile from its memory.

use ebbmalloc::internals::Beacon;

use super::data::Values;
use crate::why::memory::Process;

/// The facts about a profile.
#[derive(Clone, Copy, Debug, Default)]
pub struct Header {
    pub mean_bytes: u64,
    pub is_on: bool,
    /// By CLOCK_MONOTONIC.
    pub started_ms: u64,
    pub dropped_stacks: u64,
    pub dropped_samples: u64,
}

/// Reads the profile of the engine with this beacon, stack by stack. `None` if it has none.
pub fn read(
    _process: &mut Process,
    _beacon: &Beacon,
    _each: &mut dyn FnMut(&[u64], Values),
) -> Option<Header> {
    None
}

/// Tells an engine the mean number of bytes from one sample to the next; 0 switches off. Returns
/// whether it was told.
pub fn switch(_process: &mut Process, _beacon: &Beacon, _mean_bytes: u64) -> bool {
    false
}
