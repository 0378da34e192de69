//! The ledger: attributes each resident byte of an engine's memory to a purpose.
//!
//! It walks the region's tables and changes nothing. So the memory may be another process's
//! ([`Ledger::of`]), and in use meanwhile. Then a record may be read in the middle of a change. So
//! no record is trusted, and memory whose record makes no sense is booked as unclear. The parts
//! always add up to the resident bytes.

use crate::backend::page_map::MapEntry;
use crate::backend::region::{RegionAddresses, TABLES};
use crate::backend::run::{Run, RunState};
use crate::backend::span::Span;
use crate::size_class::{CLASSES, SizeClass, UNIT};

/// Units whose residency is requested in one call.
const UNITS_PER_REQUEST: usize = 16;
/// OS pages of this many units, where pages are the smallest: 4 KiB.
pub(crate) const PAGES_AT_A_TIME: usize = UNITS_PER_REQUEST * UNIT / 4096;

/// Declares a struct of numbers that can be added up.
macro_rules! sums {
    (
        $(#[$meta:meta])*
        $type:ident { $($(#[doc = $doc:literal])+ $name:ident,)+ } $($by_class:ident)?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $type {
            $($(#[doc = $doc])+ pub $name: u64,)+
            $(/// By class index; index 0 stays empty.
            pub $by_class: [ClassLedger; CLASSES],)?
        }

        impl $type {
            /// All numbers are 0.
            pub const EMPTY: Self =
                Self { $($name: 0,)+ $($by_class: [ClassLedger::EMPTY; CLASSES],)? };

            /// Adds the numbers of another engine.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)+
                $(for (sum, class) in self.$by_class.iter_mut().zip(&other.$by_class) {
                    sum.add(class);
                })?
            }
        }
    };
}

/// Declares the parts of a ledger: name, label, meaning and remedy, then further counts.
macro_rules! parts {
    ({ $($name:ident: $label:literal, $meaning:literal, $knob:literal;)+ }
     $($(#[doc = $doc:literal])+ $count:ident,)+) => {
        sums! {
            /// Resident bytes of one engine, by purpose.
            Ledger { $(#[doc = $meaning] $name,)+ $($(#[doc = $doc])+ $count,)+ } classes
        }

        impl Ledger {
            /// The parts, which add up to all resident bytes.
            pub fn parts(&self) -> [Part; [$($label),+].len()] {
                [$(Part {
                    name: stringify!($name),
                    label: $label,
                    bytes: self.$name,
                    meaning: $meaning,
                    knob: $knob,
                }),+]
            }
        }
    };
}

parts! {
    {
    small: "small blocks in use",
        "Blocks up to 64 KiB that the program holds.",
        "free blocks earlier in the program, or allocate less";
    large: "large blocks in use",
        "Touched memory of blocks above 64 KiB that the program holds.",
        "free blocks earlier in the program, or allocate less";
    large_rounding: "behind large blocks",
        "Touched memory behind large blocks, up to the next block or the next 64 KiB.",
        "programs with threads return it a second or two after a block last changed size, \
         others by ebb_idle() or ebb_malloc_trim(); from 512 KiB on choose sizes just below a \
         multiple of 64 KiB";
    cached: "caches",
        "Free blocks that a CPU or thread keeps for its next malloc.",
        "programs with threads empty unused caches within seconds; ebb_malloc_trim() empties them \
         at once, in per-CPU mode with threads only the caller's; EBB_MODE selects per-CPU or \
         thread caches";
    pinned: "pinned free blocks",
        "Free blocks that stay resident because a neighbour in their span is in use.",
        "programs with threads return whole pages after a second, others by ebb_idle() or \
         ebb_malloc_trim(); allocate long-lived blocks together";
    span_ends: "ends of spans",
        "Ends of spans, too short for one more block.",
        "";
    free_runs: "free runs",
        "Free memory not yet returned to the kernel, because it may be needed again soon.",
        "programs with threads return it within seconds, others by ebb_idle(); \
         ebb_malloc_trim() returns it at once";
    huge_pages: "rest of huge pages",
        "Unused memory, resident because it lies in a 2 MiB huge page.",
        "EBB_HUGE=never asks for none";
    tables: "tables",
        "ebbmalloc's tables about the memory above, some 1 % of it.",
        "";
    quarantine: "quarantine",
        "Freed blocks that EBB_CHECK or EBB_HARDEN keeps from reuse for a while.",
        "run without these variables";
    check_tables: "check tables",
        "EBB_CHECK's records: who allocated and who freed each block.",
        "run without EBB_CHECK";
    sampled: "sampled blocks",
        "Pages of sampled blocks (EBB_SAMPLE), and their records.",
        "run without EBB_SAMPLE";
    profile: "heap profile",
        "Stacks and records of the heap profile. They stay when it is switched off.",
        "";
    slabs: "slabs",
        "The caches' lists of blocks, one slab per CPU or thread.",
        "EBB_MODE, or fewer threads in thread mode";
    unclear: "unclear",
        "Memory that changed while it was read.",
        "repeat the report";
    }
    /// Small blocks that the program holds.
    small_blocks,
    /// Large blocks that the program holds.
    large_blocks,
    /// The most of `small` that may be rounding of requests up to size classes.
    small_rounding_most,
    /// Bytes of committed address space.
    committed,
}

/// A part of a ledger, with its description.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Name in JSON.
    pub name: &'static str,
    /// Name in text.
    pub label: &'static str,
    /// Resident bytes.
    pub bytes: u64,
    /// A sentence that says what the memory is for.
    pub meaning: &'static str,
    /// How to change the bytes; empty if nothing does.
    pub knob: &'static str,
}

sums! {
    /// One size class in a [`Ledger`]. All bytes are resident bytes.
    ClassLedger {
        /// Spans of the class.
        spans,
        /// Blocks that the program holds.
        live,
        /// Free blocks in caches.
        cached,
        /// Free blocks in spans.
        free,
        /// Freed blocks in the quarantine of check mode or harden mode.
        held_back,
        /// Bytes of blocks that the program holds.
        live_bytes,
        /// Bytes of free blocks in caches.
        cached_bytes,
        /// Bytes of free blocks in spans.
        pinned_bytes,
        /// Bytes behind the last blocks of spans.
        end_bytes,
        /// Spans with less than half of their blocks in use or in caches.
        sparse_spans,
        /// Blocks in use or in caches, in these spans.
        sparse_blocks,
        /// Bytes of free blocks in these spans.
        sparse_bytes,
    }
}

impl ClassLedger {
    /// Blocks in all spans of the class.
    pub fn blocks(&self) -> u64 {
        self.live + self.cached + self.free + self.held_back
    }
}

/// The tables of an engine, in this process or another. Callers ask for committed units only.
pub(crate) trait Tables {
    /// Bytes of an OS page.
    fn page(&self) -> usize;
    fn places(&self) -> RegionAddresses;
    /// Number of committed units.
    fn committed(&self) -> usize;
    /// The run that begins at a unit, and the unit's map entry. `None` if they cannot be read: the
    /// walk ends there.
    fn run(&mut self, unit: usize) -> Option<(Run, MapEntry)>;
    /// The span of this class that begins at a unit, if one still does.
    fn span(&mut self, unit: usize, class: SizeClass) -> Option<Span>;
    /// [`CHECKED`], [`HARDENED`], [`SAMPLED`], or 0 for none.
    fn safety_mode(&self) -> usize;
    /// Blocks in the quarantine of check mode.
    fn held_back(&mut self) -> HeldBack;
    /// Resident bytes of the check table, and of sampled blocks with their records.
    fn careful_bytes(&mut self) -> (u64, u64);
    /// Resident bytes of the table of the heap profile.
    fn profile_bytes(&mut self) -> u64;
    /// Resident bytes of all slabs, and blocks in caches by class.
    fn slabs(&mut self) -> (u64, [usize; CLASSES]);
    /// Sets which pages are resident, beginning with the page at `address`.
    fn resident(&mut self, address: usize, pages: &mut [bool]);
}

/// Blocks in the quarantine of check mode.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct HeldBack {
    /// Blocks by class index; index 0 counts large blocks.
    pub blocks: [u32; CLASSES],
    /// Bytes of large blocks.
    pub large_bytes: u64,
}

impl HeldBack {
    pub const NONE: Self = Self { blocks: [0; CLASSES], large_bytes: 0 };

    /// Decodes a record that was read from another process.
    pub fn from_bytes(bytes: &[u8; size_of::<Self>()]) -> Self {
        // SAFETY: the length is that of a record, of which any bytes are valid.
        unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() }
    }
}

/// Values of [`Tables::safety_mode`].
pub(crate) const CHECKED: usize = 1;
pub(crate) const HARDENED: usize = 2;
pub(crate) const SAMPLED: usize = 3;

/// The name of a safety mode, as reports print it; empty for none.
pub(crate) fn name_of_safety_mode(safety_mode: usize) -> &'static str {
    match safety_mode {
        CHECKED => "check",
        HARDENED => "harden",
        SAMPLED => "sample",
        _ => "",
    }
}

impl Ledger {
    /// All resident bytes.
    pub fn resident(&self) -> u64 {
        self.parts().iter().map(|part| part.bytes).sum()
    }

    /// Resident bytes that the program has freed, and may get again.
    pub fn free(&self) -> u64 {
        self.cached + self.pinned + self.free_runs
    }

    /// Books all that a walk over the tables finds; the ledger is empty before.
    pub(crate) fn walk(&mut self, tables: &mut impl Tables) {
        let units = tables.committed();
        // Unit 0 is never handed out, but may be resident.
        let (mut unit, mut cached_end) = (0, 0);
        while unit < units {
            let Some((run, entry)) = tables.run(unit) else { break };
            let end = (unit + run.units.max(1) as usize).min(units);
            self.book_run(tables, unit..end, run, entry, &mut cached_end);
            unit = end;
        }
        let (slab_bytes, cached) = tables.slabs();
        let held_back =
            if tables.safety_mode() == CHECKED { tables.held_back() } else { HeldBack::NONE };
        for class in SizeClass::all() {
            let index = class.index();
            // Blocks in quarantine of harden mode were counted in their spans.
            let blocks = held_back.blocks[index] as u64 + self.classes[index].held_back;
            self.book_held_back(class, blocks);
            self.book_cached(class, cached[index] as u64);
        }
        let large_bytes = held_back.large_bytes.min(self.large);
        self.large -= large_bytes;
        self.quarantine += large_bytes;
        self.large_blocks -= (held_back.blocks[0] as u64).min(self.large_blocks);
        if tables.safety_mode() != 0 {
            (self.check_tables, self.sampled) = tables.careful_bytes();
        }
        self.profile = tables.profile_bytes();
        self.slabs = slab_bytes;
        self.book_tables(tables, unit);
    }

    /// Books the run in these units: a span, a large block, or free memory. `cached_end` is the end
    /// of the last medium block below that is cached, in bytes from the region's start.
    fn book_run(
        &mut self,
        tables: &mut impl Tables,
        units: core::ops::Range<usize>,
        run: Run,
        entry: MapEntry,
        cached_end: &mut usize,
    ) {
        let bytes = units.len() * UNIT;
        if matches!(run.state, RunState::Unmapped | RunState::Foreign) {
            return;
        }
        self.committed += bytes as u64;
        if let (RunState::InUse, Some(class)) = (run.state, entry.class())
            && entry.is_first(units.start)
            && let Some(span) = tables.span(units.start, class)
            && bytes == span.bytes()
        {
            self.book_span(tables, units.start, class, &span);
            return;
        }
        if run.state == RunState::InUse && run.units == 1 && entry.is_paged() {
            self.book_paged(tables, units.start, run, entry, cached_end);
            return;
        }
        let is_run = run.state == RunState::InUse && run.units > 0;
        let (large, cached) = (is_run && entry.is_large(), is_run && entry.is_cached());
        let asked = if (1..=bytes).contains(&run.asked()) { run.asked() } else { bytes };
        self.large_blocks += large as u64;
        let page = tables.page();
        // Of a free block, the rest of its last page is as free.
        let asked = if cached { asked.next_multiple_of(page) } else { asked };
        let address = address_of(tables, units.start);
        for_each_resident(tables, address, bytes, |offset| {
            let part = match run.state {
                RunState::InUse if large || cached => {
                    let used = asked.saturating_sub(offset).min(page);
                    *(if cached { &mut self.cached } else { &mut self.large }) += used as u64;
                    self.large_rounding += (page - used) as u64;
                    return;
                }
                RunState::InUse if run.units > 0 && entry == MapEntry::HEAP => &mut self.tables,
                RunState::InUse if run.units > 0 => &mut self.unclear,
                RunState::Dirty => &mut self.free_runs,
                // Never used, or purged.
                _ => &mut self.huge_pages,
            };
            *part += page as u64;
        });
    }

    /// Books a unit with pages of medium blocks. The rounding of a block, less than a page, counts
    /// where it begins, as if its last page were resident. `cached_end` is as for
    /// [`Ledger::book_run`].
    fn book_paged(
        &mut self,
        tables: &mut impl Tables,
        unit: usize,
        run: Run,
        entry: MapEntry,
        cached_end: &mut usize,
    ) {
        let (page, start) = (tables.page(), unit * UNIT);
        let (begin, size) = (start + entry.begin(page), run.left as usize);
        for_each_resident(tables, address_of(tables, unit), UNIT, |offset| {
            let at = start + offset;
            let is_cached = at < *cached_end || entry.is_cached() && at >= begin;
            let part = match run.asked_high >> (offset / page) & 1 {
                0 => &mut self.large_rounding,
                _ if is_cached => &mut self.cached,
                _ => &mut self.large,
            };
            *part += page as u64;
        });
        if entry.is_cached() {
            *cached_end = begin + size;
        } else if entry.is_medium() {
            self.large_blocks += 1;
            let rounding = (size.wrapping_neg() % page) as u64;
            let rounding = rounding.min(self.large);
            self.large -= rounding;
            self.large_rounding += rounding;
        }
    }

    /// Books a span that begins at `unit`.
    fn book_span(&mut self, tables: &mut impl Tables, unit: usize, class: SizeClass, span: &Span) {
        let (blocks, size, page) = (span.blocks(class), class.size(), tables.page());
        let bytes = span.bytes();
        let free = span.free_blocks(blocks);
        // All pages of most spans are resident: begin with all, and subtract those that are not.
        let mut resident = SpanBytes {
            claimed: (blocks - free) * size,
            free: free * size,
            end: bytes - blocks * size,
        };
        let (mut expected, mut subtract) = (0, |from: usize, to: usize| {
            for missing in (from..to).step_by(page) {
                resident.subtract(class, span, missing, missing + page);
            }
        });
        let address = address_of(tables, unit);
        for_each_resident(tables, address, bytes, |offset| {
            subtract(expected, offset);
            expected = offset + page;
        });
        subtract(expected, bytes);

        let row = &mut self.classes[class.index()];
        row.held_back +=
            if tables.safety_mode() == HARDENED { span.count_held(blocks) as u64 } else { 0 };
        row.spans += 1;
        row.live += (blocks - free) as u64;
        row.free += free as u64;
        row.live_bytes += resident.claimed as u64;
        row.pinned_bytes += resident.free as u64;
        row.end_bytes += resident.end as u64;
        if free * 2 > blocks {
            row.sparse_spans += 1;
            row.sparse_blocks += (blocks - free) as u64;
            row.sparse_bytes += resident.free as u64;
        }
        self.pinned += resident.free as u64;
        self.span_ends += resident.end as u64;
    }

    /// Moves blocks in quarantine from the program's blocks of a class to the quarantine.
    ///
    /// Such blocks were just in use, and written, so they are taken to be resident.
    fn book_held_back(&mut self, class: SizeClass, blocks: u64) {
        let row = &mut self.classes[class.index()];
        row.held_back = blocks.min(row.live);
        row.live -= row.held_back;
        let bytes = (row.held_back * class.size() as u64).min(row.live_bytes);
        row.live_bytes -= bytes;
        self.quarantine += bytes;
    }

    /// Moves blocks in caches from the program's blocks of a class to the caches.
    ///
    /// Cached blocks were just in use, so they are taken to be resident.
    fn book_cached(&mut self, class: SizeClass, cached: u64) {
        let row = &mut self.classes[class.index()];
        let claimed = row.live_bytes;
        row.cached = cached.min(row.live);
        row.live -= row.cached;
        row.cached_bytes = (row.cached * class.size() as u64).min(claimed);
        row.live_bytes = claimed - row.cached_bytes;
        self.small_blocks += row.live;
        self.small += row.live_bytes;
        self.cached += row.cached_bytes;
        self.small_rounding_most += rounding_most(class, row.live).min(row.live_bytes);
    }

    /// Books the tables of the first `units` units.
    fn book_tables(&mut self, tables: &mut impl Tables, units: usize) {
        let (page, addresses) = (tables.page(), tables.places());
        let starts = [addresses.keys, addresses.map, addresses.runs, addresses.spans];
        for (address, entry) in starts.into_iter().zip(TABLES) {
            let bytes = (units * entry).next_multiple_of(page);
            for_each_resident(tables, address, bytes, |_| self.tables += page as u64);
        }
    }
}

/// The most bytes by which `blocks` blocks of a class may exceed their requests. Smaller requests
/// would be of the class below.
pub(crate) fn rounding_most(class: SizeClass, blocks: u64) -> u64 {
    let below = SizeClass::from_index(class.index() - 1).map_or(0, SizeClass::size);
    blocks * (class.size() - below - 1) as u64
}

/// Resident bytes of a span: of claimed blocks, of free blocks, and behind the last block.
struct SpanBytes {
    claimed: usize,
    free: usize,
    end: usize,
}

impl SpanBytes {
    /// Subtracts the bytes of the span from `from` to `to`, which are not resident.
    fn subtract(&mut self, class: SizeClass, span: &Span, from: usize, to: usize) {
        let size = class.size();
        let mut at = from;
        while at < to {
            let block = at / size;
            let (part, until) = match block < span.blocks(class) {
                true if span.is_free(block) => (&mut self.free, (block + 1) * size),
                true => (&mut self.claimed, (block + 1) * size),
                false => (&mut self.end, to),
            };
            *part -= until.min(to) - at;
            at = until.min(to);
        }
    }
}

fn address_of(tables: &impl Tables, unit: usize) -> usize {
    tables.places().start.wrapping_add(unit * UNIT)
}

/// Calls `work` with the offset of each resident page, in order.
pub(crate) fn for_each_resident(
    tables: &mut impl Tables,
    address: usize,
    bytes: usize,
    mut work: impl FnMut(usize),
) {
    let page = tables.page();
    let mut offset = 0;
    while offset < bytes {
        let mut pages = [false; PAGES_AT_A_TIME];
        let pages = &mut pages[..((bytes - offset) / page).clamp(1, PAGES_AT_A_TIME)];
        tables.resident(address.wrapping_add(offset), pages);
        for &resident in &*pages {
            if resident {
                work(offset);
            }
            offset += page;
        }
    }
}
