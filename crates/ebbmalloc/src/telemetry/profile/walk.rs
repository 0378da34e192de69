//! Walks the stacks of a heap profile, and weights their counts.
//!
//! The table may be another process's, and change meanwhile, or that process may lie. So nothing in
//! it is trusted: a walk passes no more than a table holds, and says at its end whether the table
//! stayed that of one session.

use crate::backend::arena::Ref;
use crate::figures::profile::{Counts, ProfileSamples, ProfileStack};
use crate::telemetry::profile::sampling::{share, sizes_of};
use crate::telemetry::profile::table::{CallStack, Raw, Site};
use crate::telemetry::tuning::{
    PROFILE_CALLS_MAX, PROFILE_SIZES_BYTES_MAX, PROFILE_STACKS_BYTES_MAX,
};

/// More bytes of stacks and sites than any table has.
const BYTES_MAX: usize = PROFILE_STACKS_BYTES_MAX + PROFILE_SIZES_BYTES_MAX;

/// A table that can be read piece by piece.
pub(crate) trait Source {
    /// The number of the session; odd while the table is emptied.
    fn version(&mut self) -> u32;
    /// The stack that was added last.
    fn newest(&mut self) -> Ref;
    /// The head of a stack; its calls go to `calls`, as far as they fit.
    fn stack(&mut self, stack: Ref, calls: &mut [u64]) -> Option<CallStack>;
    fn site(&mut self, site: Ref) -> Option<Site>;
}

/// Calls `work` for each stack and bucket of sizes; the flag tells whether it is the stack's last.
/// Returns false if the table is not that of this version any more, or could not be read.
fn for_each_site(
    source: &mut impl Source,
    version: u32,
    work: &mut dyn FnMut(&[u64], &Site, bool),
) -> bool {
    let mut calls = [0; PROFILE_CALLS_MAX];
    let mut left_bytes = BYTES_MAX;
    let mut next = source.newest();
    while !next.is_none() {
        let Some(stack) = source.stack(next, &mut calls) else { return false };
        let depth = (stack.depth as usize).min(PROFILE_CALLS_MAX);
        let mut bytes = size_of::<CallStack>() + depth * size_of::<u64>();
        let mut site = stack.sites;
        while !site.is_none() {
            let Some(found) = source.site(site) else { return false };
            bytes += size_of::<Site>();
            // Emptied by now, or a circle: what was read makes no sense.
            if source.version() != version || bytes > left_bytes {
                return false;
            }
            work(&calls[..depth], &found, found.next.is_none());
            site = found.next;
        }
        let Some(left) = left_bytes.checked_sub(bytes) else { return false };
        left_bytes = left;
        next = stack.previous;
    }
    version & 1 == 0 && source.version() == version
}

/// Calls `work` with the samples of each stack, for each bucket of sizes. Returns false if the
/// table was emptied meanwhile, or could not be read: then what was passed is not a whole profile.
pub(crate) fn for_each_samples(
    source: &mut impl Source,
    version: u32,
    work: &mut dyn FnMut(&ProfileSamples),
) -> bool {
    for_each_site(source, version, &mut |calls, site, _| {
        let pair = |raw: Raw| (raw.objects, raw.bytes);
        work(&ProfileSamples { calls, live: pair(site.live), allocated: pair(site.allocated) });
    })
}

/// Calls `work` with each stack. Returns as [`for_each_samples`].
pub(crate) fn for_each_stack(
    source: &mut impl Source,
    version: u32,
    mean_bytes: u64,
    work: &mut dyn FnMut(&ProfileStack),
) -> bool {
    let (mut live, mut allocated) = (Counts::default(), Counts::default());
    for_each_site(source, version, &mut |calls, site, is_last| {
        live.add(site.live, site.bucket, mean_bytes);
        allocated.add(site.allocated, site.bucket, mean_bytes);
        if is_last {
            work(&ProfileStack { calls, live, allocated });
            (live, allocated) = (Counts::default(), Counts::default());
        }
    })
}

impl Counts {
    /// Adds what these samples stand for.
    fn add(&mut self, raw: Raw, bucket: u32, mean_bytes: u64) {
        if raw.objects == 0 {
            return;
        }
        // Bytes and objects may have been read at different moments.
        let (objects, sizes) = (raw.objects as f64, sizes_of(bucket));
        let size = (raw.bytes as f64 / objects).clamp(sizes.start, sizes.end);
        let all = objects / share(size, mean_bytes);
        self.objects += all;
        self.bytes += all * size;
    }
}
