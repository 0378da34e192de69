//! Switches profiling in another process on and off, and reads the profile from its memory.

use ebbmalloc::internals::{Beacon, ProfileHeader, RemoteProfile, WritableMemory};

use super::data::{Counts, Values};
use crate::why::memory::Process;

/// How often a profile is read again that was begun anew meanwhile.
const TRIES: u32 = 5;

impl WritableMemory for Process {
    fn write(&mut self, address: usize, bytes: &[u8]) -> bool {
        self.write_at(address, bytes)
    }
}

/// Reads the state of the profile of the engine with this beacon. `None` if it never had one.
pub fn header(process: &mut Process, beacon: &Beacon) -> Option<ProfileHeader> {
    RemoteProfile::read(process, beacon).map(|profile| profile.header())
}

/// Stacks of calls, each with what it allocated.
type Stacks = Vec<(Vec<u64>, Values)>;

/// Reads the profile of the engine with this beacon. `None` if it never had one, or cannot be read.
pub fn read(process: &mut Process, beacon: &Beacon) -> Option<(ProfileHeader, Stacks)> {
    for _ in 0..TRIES {
        let profile = RemoteProfile::read(process, beacon)?;
        let counts = |counts: ebbmalloc::internals::Counts| Counts {
            objects: counts.objects,
            bytes: counts.bytes,
        };
        let mut stacks = Stacks::new();
        let is_whole = profile.for_each_stack(process, |stack| {
            let values = Values { live: counts(stack.live), allocated: counts(stack.allocated) };
            stacks.push((stack.calls.to_vec(), values));
        });
        if is_whole {
            return Some((profile.header(), stacks));
        }
    }
    None
}

/// Asks an engine for a profile with this mean number of bytes from one sample to the next; 0
/// switches it off. Returns the number of the request; `None` if the memory cannot be written.
pub fn request(process: &mut Process, beacon: &Beacon, mean_bytes: u64) -> Option<u32> {
    beacon.request_profile(process, mean_bytes)
}

/// Whether the engine has followed a request, which it does with its next allocation.
pub fn has_followed(process: &mut Process, beacon: &Beacon, request: u32) -> bool {
    beacon.has_followed(process, request).unwrap_or(false)
}
