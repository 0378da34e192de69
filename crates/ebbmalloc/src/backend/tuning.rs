//! Tunables of the back end: when addresses are committed and given up, and how much free memory stays.

use crate::size_class::UNIT;
use crate::tuning::tunables;

/// Units in so many MiB.
const fn mib(mib: usize) -> usize {
    (mib << 20) / UNIT
}

tunables! {
    /// The smallest region worth starting with.
    REGION_BYTES_MIN: usize = 4 << 20, "bytes", 31;
    /// Alignment of the region, so that huge pages fit.
    REGION_ALIGN_BYTES: usize = 2 << 20, "bytes", 31;
    /// Ranges of addresses tried at set-up where other mappings are in the way.
    REGION_ATTEMPTS_MAX: u32 = 8, "ranges", 31;
    /// The region is committed ahead of need by one part in this many of what is committed.
    COMMIT_AHEAD_SHARE: usize = 16, "of the committed", 31;
    /// The least committed at a time.
    COMMIT_UNITS_MIN: usize = mib(1), "units", 31;
    /// The most committed ahead of need.
    COMMIT_UNITS_MAX: usize = mib(32), "units", 31;
    /// Units first passed over where a mapping of another lies in the region. It may be longer: then twice as many, and so on.
    SKIP_UNITS_MIN: usize = mib(16), "units", 31;
    /// How often that doubles.
    SKIPS_MAX: u32 = 20, "times", 31;
    /// Free memory that is not resident keeps its addresses up to here. Of more, half is unmapped.
    CLEAN_UNITS_MAX: usize = mib(16), "units", 31;
    /// The same as one part in this many of what is in use or dirty.
    CLEAN_SHARE: usize = 16, "of the heap", 31;
    /// Shorter runs are not unmapped.
    UNMAP_UNITS_MIN: u32 = mib(1) as u32, "units", 31;
    /// The most unmapped runs. Each splits a mapping; a process has some 65,000 (vm.max_map_count).
    UNMAPPED_RUNS_MAX: usize = 8_192, "runs", 31;
    /// The most mappings that page moves leave behind, for the same reason.
    MOVED_MAPPINGS_MAX: usize = 8_192, "mappings", 6;
    /// The most guard pages that split mappings.
    GUARDS_MAX: usize = 12_000, "guards", 13;
    /// Runs that one call tries to make accessible again. Each takes a system call, which may fail.
    RESTORES_PER_CALL_MAX: usize = 8, "runs", 13;

    /// Without a scavenger: the most free memory that stays for a while, if that is more than what is in use. Beyond, it
    /// is purged at once.
    DIRTY_UNITS_MAX: usize = mib(32), "units", 3;
    /// Without a scavenger: free memory that stays longer, at least.
    DIRTY_UNITS_KEPT: usize = mib(4), "units", 3;
    /// The same as one part in this many of what is in use.
    DIRTY_SHARE_KEPT: usize = 8, "of what is in use", 3;
    /// Time between two purges down to that.
    PURGE_INTERVAL_MS: u64 = 10, "ms", 3;
    /// The same where little is dirty: its faults would cost more than it is worth meanwhile.
    PURGE_INTERVAL_LITTLE_MS: u64 = 80, "ms", 3;
    /// What counts as little.
    LITTLE_DIRTY_UNITS: usize = mib(12), "units", 3;
    /// With a scavenger: memory that may be resident above the recent peak of what was in use, at least.
    SLACK_UNITS: usize = mib(1), "units", 3;
    /// The same as one part in this many of that peak.
    SLACK_SHARE: usize = 16, "of the peak", 3;
    /// The peak is forgotten by one part in this many each round.
    PEAK_DECAY_SHARE: usize = 8, "of the peak", 3;
    /// Surplus that is not worth halving goes at once.
    SURPLUS_UNITS_MIN: usize = mib(1), "units", 3;
    /// Where the kernel refused memory, one part in this many of what it would have taken stays free for the host.
    REFUSED_SHARE: usize = 4, "of the refused", 31;

    /// Reclaim is considered each time this much became resident, at least.
    RECLAIM_UNITS_MIN: usize = mib(4), "units", 17;
    /// The same as one part in this many of what is in use.
    RECLAIM_SHARE: usize = 64, "of what is in use", 17;
    /// After caches were emptied or asked in vain: not before one part in this many became resident.
    RECLAIM_PAUSE_SHARE: usize = 8, "of what is in use", 17;

    /// Memory that comes back within this time was purged too early: keeping it so long costs less than its page faults.
    REFAULT_MS: u64 = 1280, "ms", 26;
    /// Refaults of less memory do not count.
    REFAULT_UNITS_MIN: usize = mib(1), "units", 26;
    /// Levels of refaults: each has free memory stay longer.
    REFAULT_LEVELS: u32 = 7, "levels", 26;
    /// From this level on, all that refaulted may stay.
    REFAULT_LEVEL_KEEPS_ALL: u32 = 4, "levels", 26;
    /// What refaulted is forgotten by one part in this many in that time.
    REFAULT_DECAY_SHARE: usize = 8, "of the refaults", 26;
    /// Levels that have surplus go by half as large parts.
    REFAULT_LEVELS_PER_HALVING: u32 = 3, "levels", 26;

    /// From this share of the memory limit on, less free memory stays.
    PRESSURE_PERCENT_MIN: u128 = 80, "percent", 9;
    /// From this share on, none stays.
    PRESSURE_PERCENT_MAX: u128 = 95, "percent", 9;

    /// Places of a large block of zeros that are looked at for data, before zeros are written.
    ZERO_PROBES: usize = 16, "places", 26;
    /// OS pages looked at in each place.
    ZERO_PROBE_PAGES: usize = 4, "pages", 26;
    /// With data in fewer places, the memory goes back to the kernel instead of being written.
    ZERO_PROBES_WITH_DATA_MIN: usize = ZERO_PROBES / 2, "places", 26;
    /// After this many blocks without data, blocks of that length are not looked at for a while: a look takes a page fault.
    SPARSE_BLOCKS_MIN: u8 = 4, "blocks", 26;
    /// log2 of the most such blocks passed over in a row.
    SPARSE_SKIPS_LOG_MAX: u8 = 8, "doublings", 26;

    /// A thread other than the first starts the scavenger when it wants one for this many times.
    SCAVENGER_WISHES_MIN: u8 = 5, "times", 33;
}
