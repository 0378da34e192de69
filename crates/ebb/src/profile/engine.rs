//! Switches profiling in another process on and off, and reads the profile from its memory.

use ebbmalloc::internals::Beacon;

use super::data::Values;
use crate::why::memory::Process;

#[derive(Clone, Copy, Debug, Default)]
pub struct ProfileHeader {
    pub mean_bytes: u64,
    pub is_on: bool,
    pub started_ms: u64,
    pub dropped_stacks: u64,
    pub dropped_samples: u64,
}

pub fn header(_process: &mut Process, _beacon: &Beacon) -> Option<ProfileHeader> {
    None
}

pub fn read(
    _process: &mut Process,
    _beacon: &Beacon,
) -> Option<(ProfileHeader, Vec<(Vec<u64>, Values)>)> {
    None
}

pub fn request(_process: &mut Process, _beacon: &Beacon, _mean_bytes: u64) -> Option<u32> {
    None
}

pub fn has_followed(_process: &mut Process, _beacon: &Beacon, _request: u32) -> bool {
    false
}
