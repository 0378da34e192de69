//! Declares each statistic once: its meaning, kind and unit. The structs, the formats, Python's
//! types and `docs/stats.md` are made from these declarations. `engine/report/stats.rs` fills the
//! values.

use core::fmt::{self, Write};
use core::marker::PhantomData;
use core::mem::offset_of;

use crate::figures::choice::Choice;
use crate::figures::process::ProcessName;
use crate::size_class::CLASSES;

/// Whether a number goes up and down (gauge), or only grows (counter).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Gauge,
    Counter,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Bytes,
    Count,
    Micros,
}

/// The declaration of one number in an `S`, and how to read it.
pub(super) struct Statistic<S> {
    pub name: &'static str,
    pub kind: Kind,
    pub unit: Unit,
    pub help: &'static str,
    /// Offset of the number in an `S`. A function per number would take more memory than the rest
    /// of the declaration.
    offset: u16,
    of: PhantomData<fn(&S)>,
}

/// Declares a struct of statistics: its numbers, each with kind and unit, then its other fields.
macro_rules! statistics {
    (
        $(#[$meta:meta])* $struct:ident {
            $($(#[doc = $doc:literal])+ $name:ident: $kind:ident $unit:ident,)+
        }
        $($(#[$other_meta:meta])+ $other:ident: $type:ty = $empty:expr;)*
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        pub struct $struct {
            $($(#[$other_meta])+ pub $other: $type,)*
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl $struct {
            pub(crate) const EMPTY: Self = Self { $($other: $empty,)* $($name: 0,)+ };

            pub(super) const DECLARED: &[Statistic<Self>] = &[$(Statistic {
                name: stringify!($name),
                kind: Kind::$kind,
                unit: Unit::$unit,
                help: concat!($($doc),+),
                offset: offset_of!(Self, $name) as u16,
                of: PhantomData,
            }),+];

            /// Name and meaning of each number, from which the types of other languages are made.
            #[doc(hidden)]
            pub fn declared() -> impl Iterator<Item = (&'static str, &'static str)> {
                Self::DECLARED.iter().map(|statistic| (statistic.name, statistic.help()))
            }
        }
    };
}

statistics! {
    /// A snapshot of an engine and its process.
    Stats {
        /** In blocks that the program holds, rounded up to size classes or OS pages. */
        live_bytes: Gauge Bytes,
        /// High-water mark of `live_bytes`, with several threads within 128 KiB. 0 without
        /// `EBB_STATS`.
        peak_bytes: Gauge Bytes,
        /** In all blocks allocated since the start. 0 without `EBB_STATS`. */
        allocated_bytes: Counter Bytes,
        /** In all blocks freed since the start. 0 without `EBB_STATS`. */
        freed_bytes: Counter Bytes,
        /** In free blocks in per-CPU or thread caches. */
        cached_bytes: Gauge Bytes,
        /** In free blocks that are resident, in spans that also have blocks in use. */
        pinned_bytes: Gauge Bytes,
        /// In free blocks of spans that are not resident: their OS pages were never touched, or
        /// were purged.
        hole_bytes: Gauge Bytes,
        /** In ends of spans after their last block, behind large blocks, in heaps' records. */
        end_bytes: Gauge Bytes,
        /** In free runs that are resident. */
        dirty_bytes: Gauge Bytes,
        /// Free memory that stays resident because as much was needed again soon after a purge
        /// (refaults).
        wanted_bytes: Gauge Bytes,
        /** In blocks above 64 KiB that the program holds. */
        large_bytes: Gauge Bytes,
        /** Upper bound of the rounding in `live_bytes`: to classes, OS pages, in heaps 64 KiB. */
        rounding_bytes: Gauge Bytes,
        /** The part of `live_bytes` in heaps that the program made (`ebb_heap_new`, `Heap`). */
        heap_bytes: Gauge Bytes,
        /** The part of `live_bytes` in sampled blocks (`EBB_SAMPLE`). */
        sampled_bytes: Gauge Bytes,
        /** Blocks sampled since the start. */
        sampled_blocks: Counter Count,
        /** Mean number of bytes between samples of the heap profile. 0 while it is off. */
        profile_mean_bytes: Gauge Bytes,
        /** Blocks sampled for the heap profile since it was last switched on. */
        profiled_blocks: Gauge Count,
        /** Such blocks without their stack, or not sampled, for lack of memory. */
        profile_losses: Gauge Count,
        /** Heaps that the program made and has not deleted. */
        heaps: Gauge Count,
        /// Counted against `EBB_LIMIT`: units in use, free units that are resident, and their
        /// tables.
        held_bytes: Gauge Bytes,
        /** Limit of `held_bytes`, in whole units of 64 KiB with their tables. 0 means no limit. */
        limit_bytes: Gauge Bytes,
        /// Memory limit of the control group, or memory of the machine, read at set-up. 0 if
        /// unknown.
        memory_bytes: Gauge Bytes,
        /** Requests for memory that were refused since the start: by a limit, or for lack of it. */
        refusals: Counter Count,
        /** Committed address space, in use or not, resident or not. */
        committed_bytes: Gauge Bytes,
        /** Committed address space of the tables that describe `committed_bytes`. */
        table_bytes: Gauge Bytes,
        /** Committed address space of the slabs, where caches keep their lists. */
        slab_bytes: Gauge Bytes,
        /** Purged (returned to the kernel) since the start, without `dug_bytes`. */
        purged_bytes: Counter Bytes,
        /** Purged since the start as whole OS pages within spans, and behind large blocks. */
        dug_bytes: Counter Bytes,
        /** System calls that purged `purged_bytes`. */
        purges: Counter Count,
        /// In huge pages that the engine asked for. The kernel may have given small pages, the
        /// program may not have touched all, and parts may have been purged within spans.
        huge_bytes: Gauge Bytes,
        /** Huge pages that the engine asked for since the start. */
        huge_pages: Counter Count,
        /** Requests for a huge page that the kernel refused, as one without them does. */
        huge_refusals: Counter Count,
        /** Time for those that the engine touched first, by a clock that ticks some ms apart. */
        huge_us: Counter Micros,
        /** Blocks above 64 KiB that the program holds. */
        large_blocks: Gauge Count,
        /** Spans of all size classes. */
        spans: Gauge Count,
        /** Batches of blocks that went from spans to caches. */
        refills: Counter Count,
        /** Batches of blocks that went from caches to spans. */
        flushes: Counter Count,
        /** Time since the process started. */
        elapsed_us: Gauge Micros,
        /** CPU time of the process in user mode. */
        user_us: Counter Micros,
        /** CPU time of the process in the kernel. */
        system_us: Counter Micros,
        /** Page faults of the process that read no storage. */
        minor_faults: Counter Count,
        /** Page faults of the process that read storage. */
        major_faults: Counter Count,
        /** Resident memory of the process, including what the engine did not allocate. */
        resident_bytes: Gauge Bytes,
        /** High-water mark of `resident_bytes`. */
        peak_resident_bytes: Gauge Bytes,
    }
    /// The front end in force, and why.
    choice: Choice = Choice::UNSET;
    /// The process.
    process: ProcessName = ProcessName { program: "", id: 0 };
    /// By class index; index 0 stays empty.
    classes: [ClassStats; CLASSES] = [ClassStats::EMPTY; CLASSES];
}

statistics! {
    /// One size class in a [`Stats`].
    ClassStats {
        /** Bytes in a block. */
        block_bytes: Gauge Bytes,
        /** Spans of the class. */
        spans: Gauge Count,
        /** Blocks that the program holds. */
        live: Gauge Count,
        /** Free blocks in caches. */
        cached: Gauge Count,
        /** Free blocks in spans. */
        free: Gauge Count,
        /** In free blocks of spans that are not resident. */
        hole_bytes: Gauge Bytes,
        /** Batches of blocks that went from spans to caches. */
        refills: Counter Count,
        /** Batches of blocks that went from caches to spans. */
        flushes: Counter Count,
    }
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
        }
    }
}

impl<S> Statistic<S> {
    /// The number's value in `of`.
    pub fn value(&self, of: &S) -> u64 {
        // SAFETY: `statistics!` sets `offset` to that of a `u64` field of `S`.
        unsafe { (&raw const *of).byte_add(self.offset as usize).cast::<u64>().read() }
    }

    /// The declared meaning, without the space around it.
    pub fn help(&self) -> &'static str {
        self.help.trim()
    }

    fn document(declared: &[Self], out: &mut impl Write) -> fmt::Result {
        writeln!(out, "| name | kind | meaning |\n|---|---|---|")?;
        for statistic in declared {
            let Statistic { name, kind, .. } = statistic;
            writeln!(out, "| `{name}` | {} | {} |", kind.name(), statistic.help())?;
        }
        Ok(())
    }
}

impl Stats {
    /// Writes the tables of `docs/stats.md`: the statistics, and those of each size class.
    pub fn document(out: &mut impl Write) -> fmt::Result {
        Statistic::document(Self::DECLARED, out)?;
        out.write_str("\nFor each size class in use:\n\n")?;
        Statistic::document(ClassStats::DECLARED, out)
    }

    pub(super) fn used_classes(&self) -> impl Iterator<Item = &ClassStats> {
        self.classes.iter().filter(|row| row.spans + row.refills > 0)
    }
}
