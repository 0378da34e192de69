//! Defines a heap profile for its readers: stacks of calls, and estimates of what they allocated.

/// The mean number of bytes from one sampled block to the next, unless the user gives another.
pub const MEAN_BYTES: u64 = 512 << 10;

/// The state of a heap profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProfileHeader {
    /// The mean number of bytes from one sampled block to the next.
    pub mean_bytes: u64,
    /// Whether blocks are sampled now. If not, blocks freed since are still subtracted.
    pub is_on: bool,
    /// When it was switched on, by CLOCK_MONOTONIC.
    pub started_ms: u64,
    /// Sampled blocks whose stack was not kept, because there were too many. They count as those
    /// of a stack without calls.
    pub dropped_stacks: u64,
    /// Blocks that were to be sampled and were not, because memory was short.
    pub dropped_samples: u64,
    /// Blocks sampled since it was switched on.
    pub sampled_blocks: u64,
}

/// Blocks of a stack, and the bytes requested for them: estimates of all, made from the sampled
/// ones.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Counts {
    /// Number of blocks.
    pub objects: f64,
    /// Their bytes.
    pub bytes: f64,
}

/// A stack of calls that allocated sampled blocks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ProfileStack<'a> {
    /// Addresses of the last bytes of the calling instructions, the innermost call first. None if
    /// the stack could not be read or was not kept.
    pub calls: &'a [u64],
    /// What the program still holds.
    pub live: Counts,
    /// What it allocated since the profile was switched on.
    pub allocated: Counts,
}

/// Sampled blocks of similar sizes that one stack allocated: numbers of the samples themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProfileSamples<'a> {
    /// As in [`ProfileStack`].
    pub calls: &'a [u64],
    /// Objects and bytes that the program still holds.
    pub live: (u64, u64),
    /// Objects and bytes allocated since the profile was switched on.
    pub allocated: (u64, u64),
}
