//! Tunables of the back end: when addresses are committed and unmapped, and how much free memory
//! stays resident.

use crate::size_class::UNIT;
use crate::tuning::tunables;

/// Converts MiB to units.
const fn mib(mib: usize) -> usize {
    (mib << 20) / UNIT
}

tunables! {
    /// A budget is this share of the time. There is one for refaults without a scavenger, and one
    /// for what huge pages take beyond what small pages take.
    BUDGET_DIVISOR: i64 = 32, "of the time", 44;
    /// The most that a budget saves up.
    BUDGET_NS_MAX: i64 = 32_000_000, "ns", 44;
    /// The most that a budget is overdrawn: 80 s of waiting.
    DEBT_NS_MAX: i64 = 2_500_000_000, "ns", 44;
    /// What a unit that refaults costs: 16 page faults, and the purge.
    REFAULT_NS: i64 = 40_000, "ns", 44;

    /// The smallest region that set-up accepts.
    REGION_BYTES_MIN: usize = 4 << 20, "bytes", 31;
    /// Alignment of the region's start, for huge pages.
    REGION_ALIGN_BYTES: usize = 2 << 20, "bytes", 31;
    /// The region is committed this far ahead of need.
    COMMIT_UNITS: usize = mib(1), "units", 31;
    /// The most bytes of a new medium block. Units of longer ones leave at most an eighth unused.
    MEDIUM_BYTES_MAX: usize = (512 << 10) - 1, "bytes", 43;
    /// Gaps that are looked at for a medium block. Mostly the first one does.
    GAPS_TRIED_MAX: usize = 128, "gaps", 43;
    /// Gaps whose growth is refused before only resident ones are looked at.
    GAP_REFUSALS_MAX: usize = 4, "gaps", 43;
    /// Places of freed medium blocks that a program at its limit finds again.
    FREED_ENDS: usize = 8, "blocks", 43;
    /// Units that the region first skips at a foreign mapping. Each further try doubles it, since
    /// the mapping may be longer.
    SKIP_UNITS_MIN: usize = mib(16), "units", 31;
    /// How often the skip may double.
    SKIPS_MAX: u32 = 20, "times", 31;
    /// From this length on, a free run's entries of the span table are purged with it: they are by
    /// far the largest.
    SPAN_ENTRIES_PURGED_UNITS_MIN: u32 = 64, "units", 31;
    /// Clean memory (free, mapped, not resident) up to this stays mapped. Beyond the limit, clean
    /// runs are unmapped down to half of it.
    CLEAN_UNITS_KEPT: usize = mib(16), "units", 31;
    /// The shortest run that is unmapped, and the least that is mapped again.
    UNMAP_UNITS_MIN: u32 = mib(1) as u32, "units", 31;
    /// The most unmapped runs. Each splits a mapping, and a process may have about 65,000
    /// (vm.max_map_count).
    UNMAPPED_RUNS_MAX: usize = 8_192, "runs", 31;
    /// The most mappings that moved pages leave behind. Each counts against vm.max_map_count too.
    MOVED_MAPPINGS_MAX: usize = 8_192, "mappings", 6;
    /// Free runs age in steps of this much freed memory.
    AGE_UNITS: u32 = mib(1) as u32, "units", 45;
    /// Old runs that one purge takes before others, and runs that it looks at for each of them.
    OLD_RUNS_MAX: usize = 32, "runs", 45;
    /// Refusals of the kernel after which one call purges no further runs.
    REFUSED_PURGES_MAX: usize = 8, "runs", 3;
    /// The most guard pages where each splits a mapping. They count against vm.max_map_count.
    GUARDS_MAX: usize = 12_000, "guards", 13;

    /// The least slack, the least surplus that is halved, and the least that counts as refaulted.
    /// Smaller amounts are not worth a rule.
    SMALL_UNITS: usize = mib(1), "units", 3;
    /// The slack. A scavenger lets free memory stay up to one slack above the recent peak. Without
    /// one, beyond two slacks an interval purge leaves one.
    SLACK_DIVISOR: usize = 16, "of what is in use", 3;
    /// Dirty memory that may stay between two purges, without a scavenger. The limit rises to
    /// memory in use, and to the recent peak where refaults have overdrawn their budget. Beyond it,
    /// a free purges at once.
    DIRTY_UNITS_MAX: usize = mib(32), "units", 3;
    /// A free that purges at once leaves this part less than the limit.
    AT_ONCE_DIVISOR: usize = 8, "of the limit", 3;
    /// Dirty memory times the interval between two purges, without a scavenger. 10 MiB stay for 96
    /// ms, 100 MiB for 9 ms. `EBB_PURGE_DELAY` scales the interval.
    PURGE_MIB_MS: u64 = 960, "MiB·ms", 3;
    /// The purge delay if `EBB_PURGE_DELAY` sets none: the time between two rounds of a scavenger.
    /// With another delay, intervals between purges are longer or shorter in proportion.
    USUAL_DELAY_MS: u64 = 200, "ms", 3;
    /// What the recorded peak of use, and the recorded refaults, drop by each time.
    DECAY_DIVISOR: usize = 8, "of the record", 3;
    /// Dirty memory that may stay near a bound. Bounds are the memory limit, and a size that the
    /// kernel refused. The rest is left to the host program.
    SPARE_DIVISOR: usize = 4, "of the distance", 3;

    /// With less in use, the page heap grows without reclaim.
    RECLAIM_IN_USE_UNITS_MIN: usize = mib(4), "units", 17;
    /// The page heap asks for reclaim each time that this became resident.
    RECLAIM_DIVISOR: usize = 64, "of what is in use", 17;
    /// After a reclaim, also one in vain, it asks again once this became resident.
    RECLAIM_PAUSE_DIVISOR: usize = 8, "of what is in use", 17;

    /// Purged memory that is needed again within this time was purged too early. Keeping it that
    /// long costs less than its page faults. Also the longest interval between purges, and the time
    /// after which the refault level falls by one.
    REFAULT_MS: u64 = 1280, "ms", 26;
    /// The highest refault level. Each level halves the part of a surplus that goes.
    REFAULT_LEVELS: u32 = 3, "levels", 26;

    /// The length of a huge page.
    HUGE_UNITS: u32 = mib(2) as u32, "units", 37;
    /// With less in use, no huge page is asked for: small programs stay small.
    HUGE_IN_USE_UNITS_MIN: usize = mib(16), "units", 37;
    /// The shortest run that huge pages back as the program touches it.
    HUGE_RUN_UNITS_MIN: u32 = mib(4) as u32, "units", 37;
    /// The most huge pages that such runs have or had, until they are purged, with `EBB_HUGE=auto`:
    /// what may be resident though the program hardly touched it.
    HUGE_RUN_PAGES_MAX: u32 = 32, "huge pages", 37;
    /// Least time that the memory of a huge page takes in small pages: 1 µs each.
    SMALL_NS: i64 = 500_000, "ns", 37;
    /// What may be spent at first, so that no first tick of the clock ends huge pages.
    FIRST_CREDIT_NS: i64 = 3_000_000, "ns", 37;
    /// log2 of the most huge pages not asked for in a row, after refusals.
    HUGE_SKIPS_LOG_MAX: u32 = 6, "doublings", 37;

    /// From this length on, a block that seems to hold zeros is purged, and not read. The program
    /// may have written zeros, and would fault for each page again: as with glibc, which maps such
    /// blocks anew.
    PURGED_ZEROS_BYTES_MIN: usize = 32 << 20, "bytes", 48;
    /// Pages of such a block that are looked at for data.
    ZERO_PROBES: usize = 8, "pages", 48;

    /// Requests for a scavenger, by threads other than the first, that are ignored before one
    /// starts it.
    SCAVENGER_REQUESTS_IGNORED: u8 = 5, "times", 33;

    /// Bytes of freed small blocks after which, without a scavenger, free pages of spans are purged
    /// if most of their resident memory is free.
    BURST_BYTES: usize = 8 << 20, "bytes", 36;
    /// A purge of the whole heap that brings less than this costs from the budget of refaults.
    BURST_WORTH_DIVISOR: usize = 8, "of the free memory", 36;
    /// What it costs, for each unit that it looked at.
    BURST_UNIT_NS: i64 = 250, "ns", 44;
    /// How much more of the spans' resident memory must be free than claimed for such a purge.
    BURST_FREE_BYTES_MIN: usize = 16 << 20, "bytes", 36;
}
