//! Heap profiles of this process: which stacks of calls allocated the memory that it holds.
//!
//! While a profile is on, a few allocated blocks are sampled with their stacks: one each 512 KiB on
//! average, or each number of bytes that you choose. The counts of a profile are estimates for all
//! blocks, made from these. It costs nothing while it is off.
//!
//! ```
//! use ebbmalloc::{EbbMalloc, profile};
//!
//! #[global_allocator]
//! static GLOBAL: EbbMalloc = EbbMalloc;
//!
//! profile::start(profile::MEAN_BYTES);
//! let kept: Vec<Vec<u8>> = (0..100).map(|_| vec![1; 1 << 20]).collect();
//! let mut live_bytes = 0.0;
//! let snapshot = profile::snapshot().unwrap();
//! snapshot.for_each_stack(|stack| live_bytes += stack.live.bytes);
//! assert!((90e6..120e6).contains(&live_bytes));
//! profile::stop();
//! # drop(kept);
//! ```
//!
//! The crate `ebbmalloc-pprof` makes pprof files of it, for pages such as `/debug/pprof/heap`.
//! `ebb profile PID` does the same to any process from outside, and shows functions and lines.

use core::ffi::CStr;
use core::time::Duration;

pub use crate::figures::profile::{Counts, ProfileHeader, ProfileSamples, ProfileStack};
use crate::this_process::ENGINE;

/// The mean number of bytes between samples that suits programs in production: 512 KiB.
pub const MEAN_BYTES: u64 = crate::figures::profile::MEAN_BYTES;

/// Switches the profile on: a block is sampled each `mean_bytes` bytes, on average.
///
/// A profile that is on with this mean goes on. With another mean, or after a stop, a new one
/// begins. Returns false if memory is short, the mean is 0, or the engine does not run on this
/// target ([`EbbMalloc::is_active`](crate::EbbMalloc::is_active)).
pub fn start(mean_bytes: u64) -> bool {
    ENGINE.start_profile(mean_bytes)
}

/// Switches the profile off. It can still be read: blocks that are freed later are subtracted.
pub fn stop() {
    ENGINE.stop_profile();
}

/// Returns the profile, or the last one if it is off; `None` if there never was one.
pub fn snapshot() -> Option<Snapshot> {
    ENGINE.profile_header().map(|header| Snapshot { header })
}

/// Writes the profile to a file as text, which `ebb profile FILE` and `go tool pprof` read.
/// Returns false if there never was one, or not all of it could be written. Does not allocate.
pub fn write(path: &CStr) -> bool {
    ENGINE.write_profile(path)
}

/// A heap profile to walk. It is read while it is walked: the program may go on meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    header: ProfileHeader,
}

impl Snapshot {
    /// The state of the profile when the snapshot was taken.
    pub fn header(&self) -> ProfileHeader {
        self.header
    }

    /// The time since the profile was switched on.
    pub fn age(&self) -> Duration {
        Duration::from_millis(ENGINE.profile_age_ms())
    }

    /// Calls `work` with each stack, which may allocate. Returns false if a new profile began
    /// meanwhile: then the stacks are not those of a whole one.
    pub fn for_each_stack(&self, mut work: impl FnMut(&ProfileStack)) -> bool {
        ENGINE.for_each_profile_stack(&mut work)
    }

    /// Calls `work` with the sampled blocks of each stack, once for each range of sizes. Returns
    /// as [`Snapshot::for_each_stack`].
    pub fn for_each_samples(&self, mut work: impl FnMut(&ProfileSamples)) -> bool {
        ENGINE.for_each_profile_samples(&mut work)
    }
}
