//! The ledger: for every resident byte of a heap, what it is there for. It is found by a walk over the
//! region's tables, which changes nothing; so it may be somebody else's heap ([`Ledger::of`]), in use at
//! that very moment. Then records may be seen in the middle of a change: nothing here trusts them, and
//! what makes no sense is booked as unclear. The parts add up to what is resident, always.

use crate::backend::page_map::MapEntry;
use crate::backend::region::{RegionAddresses, TABLES};
use crate::backend::run::{Run, State};
use crate::backend::span::Span;
use crate::size_class::{CLASSES, SizeClass, UNIT};

/// Units whose pages are asked for at a time.
const UNITS_AT_A_TIME: usize = 16;
/// OS pages of so many units: they are 4 KiB at least.
pub(crate) const PAGES_AT_A_TIME: usize = UNITS_AT_A_TIME * UNIT / 4096;

/// Declares a record of numbers that can be added up.
macro_rules! sums {
    ($(#[$meta:meta])* $type:ident { $($(#[doc = $doc:literal])+ $name:ident,)+ } $($more:ident)?) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $type {
            $($(#[doc = $doc])+ pub $name: u64,)+
            $(/// By class index; index 0 stays empty.
            pub $more: [ClassLedger; CLASSES],)?
        }

        impl $type {
            /// Nothing.
            pub const EMPTY: Self = Self { $($name: 0,)+ $($more: [ClassLedger::EMPTY; CLASSES],)? };

            /// Adds another heap's.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)+
                $(for (sum, more) in self.$more.iter_mut().zip(&other.$more) {
                    sum.add(more);
                })?
            }
        }
    };
}

/// Declares the parts of a ledger: name, label, meaning, and what changes it; then what else it counts.
macro_rules! parts {
    ({ $($name:ident: $label:literal, $meaning:literal, $knob:literal;)+ }
     $($(#[doc = $doc:literal])+ $count:ident,)+) => {
        sums! {
            /// Resident bytes of one heap, and what they are there for.
            Ledger { $(#[doc = $meaning] $name,)+ $($(#[doc = $doc])+ $count,)+ } classes
        }

        impl Ledger {
            /// The parts, which add up to all that is resident.
            pub fn parts(&self) -> [Part; [$($label),+].len()] {
                [$(Part { name: stringify!($name), label: $label, bytes: self.$name, meaning: $meaning, knob: $knob }),+]
            }
        }
    };
}

parts! {
    {
    small: "small blocks in use",
        "Blocks up to 64 KiB that the program holds.",
        "the program: free earlier, or allocate less";
    large: "large blocks in use",
        "Blocks above 64 KiB that the program holds, as far as it has touched them.",
        "the program: free earlier, or allocate less";
    large_rounding: "behind large blocks",
        "Touched memory between the ends of large blocks and the next multiple of 64 KiB.",
        "it goes back once a block has had its size for a second or two in programs with threads, in others by ebb_idle() or ebb_malloc_trim(); against the rest, sizes just below a multiple of 64 KiB";
    cached: "caches",
        "Free blocks that lie ready for the next malloc of a CPU or a thread.",
        "ebb_malloc_trim() empties them, in programs with threads a second without use; EBB_MODE chooses who has one";
    pinned: "pinned free blocks",
        "Free blocks that stay resident because a neighbour in their span is in use.",
        "whole pages of them go back after a second in programs with threads, in others by ebb_idle() or ebb_malloc_trim(); against the rest, allocate what lives long together";
    span_ends: "ends of spans",
        "Room at the end of a span that is too small for one more block.",
        "";
    free_runs: "free runs",
        "Free memory not yet given back to the kernel, since it may soon be wanted again.",
        "it goes back within seconds in programs with threads, in others by ebb_idle(); by ebb_malloc_trim() at once";
    huge_pages: "rest of huge pages",
        "Memory without any use yet, resident because the kernel gave a huge page of 2 MiB where a part was touched.",
        "the sysctl file /sys/kernel/mm/transparent_hugepage/enabled";
    tables: "tables",
        "What ebbmalloc writes down about the memory above, some 1 % of it.",
        "";
    quarantine: "quarantine",
        "Blocks that the program has freed, and that are held back for a while by EBB_CHECK or EBB_HARDEN.",
        "run without these variables";
    check_tables: "check tables",
        "What EBB_CHECK writes down about each block: who allocated it, and who freed it.",
        "run without EBB_CHECK";
    sampled: "sampled blocks",
        "PageHeap of sampled blocks (EBB_SAMPLE), and what is written down about them.",
        "run without EBB_SAMPLE";
    slabs: "slabs",
        "The lists of blocks that caches hold, one slab a CPU or a thread.",
        "EBB_MODE, or fewer threads in thread mode";
    unclear: "unclear",
        "Memory that changed hands while it was looked at.",
        "look again";
    }
    /// Small blocks that the program holds.
    small_blocks,
    /// Large blocks that the program holds.
    large_blocks,
    /// The most that of `small` may be due to rounding requests up to size classes.
    small_rounding_most,
    /// Address space made usable.
    committed,
}

/// A part of a ledger, and what to say about it.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// For machines.
    pub name: &'static str,
    /// For people.
    pub label: &'static str,
    /// How much is resident.
    pub bytes: u64,
    /// What it is, in a sentence.
    pub meaning: &'static str,
    /// What changes it; empty where nothing does.
    pub knob: &'static str,
}

sums! {
    /// One size class in a [`Ledger`]; bytes are resident ones.
    ClassLedger {
        /// Spans of the class.
        spans,
        /// Blocks that the program holds.
        live,
        /// Free blocks in caches.
        cached,
        /// Free blocks in spans.
        free,
        /// Blocks that were freed and are held back, by check mode or by hardening.
        held_back,
        /// In blocks that the program holds.
        live_bytes,
        /// In free blocks of caches.
        cached_bytes,
        /// In free blocks of spans.
        pinned_bytes,
        /// Behind the last blocks of spans.
        end_bytes,
        /// Spans of which less than half of the blocks are in use, or in caches.
        sparse_spans,
        /// The blocks in use, or in caches, that keep these spans.
        sparse_blocks,
        /// In free blocks of these spans.
        sparse_bytes,
    }
}

impl ClassLedger {
    /// Blocks in all of its spans.
    pub fn blocks(&self) -> u64 {
        self.live + self.cached + self.free + self.held_back
    }
}

/// A heap's tables, wherever they are. Units that are asked for are committed.
pub(crate) trait Tables {
    fn page(&self) -> usize;
    fn places(&self) -> RegionAddresses;
    /// Units that are committed.
    fn committed(&self) -> usize;
    /// What begins at a unit, and what the map says of it.
    fn run(&mut self, unit: usize) -> (Run, MapEntry);
    /// The span of this class that begins at a unit, if one still does.
    fn span(&mut self, unit: usize, class: SizeClass) -> Option<Span>;
    /// What is done with each block beside handing it out: 0 for nothing.
    fn safety_mode(&self) -> usize;
    /// By class the blocks that check mode holds back.
    fn held_back(&mut self) -> HeldBack;
    /// Resident bytes of what check mode knows, and of sampled blocks.
    fn careful_bytes(&mut self) -> (u64, u64);
    /// Resident bytes of all slabs, and by class the blocks that caches hold.
    fn slabs(&mut self) -> (u64, [usize; CLASSES]);
    /// Which pages from an address on are resident.
    fn resident(&mut self, address: usize, pages: &mut [bool]);
}

/// What check mode holds back: blocks by class, of which those of index 0 are large, and bytes in large ones.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct HeldBack {
    pub blocks: [u32; CLASSES],
    pub large_bytes: u64,
}

impl HeldBack {
    pub const NONE: Self = Self { blocks: [0; CLASSES], large_bytes: 0 };

    /// Understands what lies where there is one in another process.
    pub fn from_bytes(bytes: &[u8; size_of::<Self>()]) -> Self {
        // SAFETY: as long, and any bytes are valid.
        unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() }
    }
}

/// What [`Tables::care`] says.
pub(crate) const CHECKED: usize = 1;
pub(crate) const HARDENED: usize = 2;
pub(crate) const SAMPLED: usize = 3;

/// The same for people and machines.
pub(crate) fn name_of_safety_mode(care: usize) -> &'static str {
    match care {
        CHECKED => "check",
        HARDENED => "harden",
        SAMPLED => "sample",
        _ => "",
    }
}

impl Ledger {
    /// All that is resident.
    pub fn resident(&self) -> u64 {
        self.parts().iter().map(|part| part.bytes).sum()
    }

    /// Free memory, whatever keeps it.
    pub fn free(&self) -> u64 {
        self.cached + self.pinned + self.free_runs
    }

    /// Walks the tables.
    pub(crate) fn walk(tables: &mut impl Tables) -> Self {
        let mut ledger = Self::EMPTY;
        let units = tables.committed();
        // Unit 0 is nobody's, but may be resident.
        let mut unit = 0;
        while unit < units {
            let (run, entry) = tables.run(unit);
            let end = (unit + run.units.max(1) as usize).min(units);
            ledger.book_run(tables, unit..end, run, entry);
            unit = end;
        }
        let (slabs, held) = tables.slabs();
        let held_back =
            if tables.safety_mode() == CHECKED { tables.held_back() } else { HeldBack::NONE };
        for class in SizeClass::all() {
            let index = class.index();
            // What hardening holds back its spans say.
            let blocks = held_back.blocks[index] as u64 + ledger.classes[index].held_back;
            ledger.book_held_back(class, blocks);
            ledger.book_cached(class, held[index] as u64);
        }
        let large = held_back.large_bytes.min(ledger.large);
        ledger.large -= large;
        ledger.quarantine += large;
        ledger.large_blocks -= (held_back.blocks[0] as u64).min(ledger.large_blocks);
        if tables.safety_mode() != 0 {
            (ledger.check_tables, ledger.sampled) = tables.careful_bytes();
        }
        ledger.slabs = slabs;
        ledger.book_tables(tables, units);
        ledger
    }

    fn book_run(
        &mut self,
        tables: &mut impl Tables,
        units: core::ops::Range<usize>,
        run: Run,
        entry: MapEntry,
    ) {
        let bytes = units.len() * UNIT;
        if matches!(run.state, State::Unmapped | State::Foreign) {
            return;
        }
        self.committed += bytes as u64;
        if let (State::InUse, Some(class)) = (run.state, entry.class())
            && entry.is_first(units.start)
            && let Some(span) = tables.span(units.start, class)
            && bytes == span.bytes()
        {
            self.book_span(tables, units.start, class, &span);
            return;
        }
        let large =
            run.state == State::InUse && run.units > 0 && entry.of_anyone() == MapEntry::LARGE;
        let asked = if (1..=bytes).contains(&run.asked()) { run.asked() } else { bytes };
        self.large_blocks += large as u64;
        let page = tables.page();
        let address = address_of(tables, units.start);
        for_each_resident(tables, address, bytes, |offset| {
            let part = match run.state {
                State::InUse if large => {
                    let used = asked.saturating_sub(offset).min(page);
                    self.large += used as u64;
                    self.large_rounding += (page - used) as u64;
                    return;
                }
                State::InUse if run.units > 0 && entry == MapEntry::HEAP => &mut self.tables,
                State::InUse if run.units > 0 => &mut self.unclear,
                State::Dirty => &mut self.free_runs,
                // Never used, or given back.
                _ => &mut self.huge_pages,
            };
            *part += page as u64;
        });
    }

    fn book_span(&mut self, tables: &mut impl Tables, unit: usize, class: SizeClass, span: &Span) {
        let (blocks, size, page) = (span.blocks(class), class.size(), tables.page());
        let bytes = span.bytes();
        let free = span.count_free(blocks);
        // Of most spans all pages are resident: begin with that, and take off those that are not.
        let mut split = Split {
            claimed: (blocks - free) * size,
            free: free * size,
            end: bytes - blocks * size,
        };
        let (mut expected, mut missing) = (0, |from: usize, to: usize| {
            for missing in (from..to).step_by(page) {
                split.take_off(class, span, missing, missing + page);
            }
        });
        let address = address_of(tables, unit);
        for_each_resident(tables, address, bytes, |offset| {
            missing(expected, offset);
            expected = offset + page;
        });
        missing(expected, bytes);

        let row = &mut self.classes[class.index()];
        row.held_back +=
            if tables.safety_mode() == HARDENED { span.count_held(blocks) as u64 } else { 0 };
        row.spans += 1;
        row.live += (blocks - free) as u64;
        row.free += free as u64;
        row.live_bytes += split.claimed as u64;
        row.pinned_bytes += split.free as u64;
        row.end_bytes += split.end as u64;
        if free * 2 > blocks {
            row.sparse_spans += 1;
            row.sparse_blocks += (blocks - free) as u64;
            row.sparse_bytes += split.free as u64;
        }
        self.pinned += split.free as u64;
        self.span_ends += split.end as u64;
    }

    /// Tells what is held back of a class from what the program has. Such blocks were just in use, and written, so they are taken to be
    /// resident.
    fn book_held_back(&mut self, class: SizeClass, blocks: u64) {
        let row = &mut self.classes[class.index()];
        row.held_back = blocks.min(row.live);
        row.live -= row.held_back;
        let bytes = (row.held_back * class.size() as u64).min(row.live_bytes);
        row.live_bytes -= bytes;
        self.quarantine += bytes;
    }

    /// Tells what caches hold of a class from what the program does. Cached blocks were just in use, so
    /// they are taken to be resident.
    fn book_cached(&mut self, class: SizeClass, held: u64) {
        let row = &mut self.classes[class.index()];
        let claimed = row.live_bytes;
        row.cached = held.min(row.live);
        row.live -= row.cached;
        row.cached_bytes = (row.cached * class.size() as u64).min(claimed);
        row.live_bytes = claimed - row.cached_bytes;
        self.small_blocks += row.live;
        self.small += row.live_bytes;
        self.cached += row.cached_bytes;
        self.small_rounding_most += rounding_most(class, row.live).min(row.live_bytes);
    }

    fn book_tables(&mut self, tables: &mut impl Tables, units: usize) {
        let (page, places) = (tables.page(), tables.places());
        let starts = [places.keys, places.map, places.runs, places.spans];
        for (address, entry) in starts.into_iter().zip(TABLES) {
            let bytes = (units * entry).next_multiple_of(page);
            for_each_resident(tables, address, bytes, |_| self.tables += page as u64);
        }
    }
}

/// The most that so many blocks of a class may be larger than what was asked for: they would be of the class below.
pub(crate) fn rounding_most(class: SizeClass, blocks: u64) -> u64 {
    let below = SizeClass::from_index(class.index() - 1).map_or(0, SizeClass::size);
    blocks * (class.size() - below - 1) as u64
}

/// Resident bytes of a span.
struct Split {
    claimed: usize,
    free: usize,
    end: usize,
}

impl Split {
    /// The bytes from `from` to `to` of the span are not resident.
    fn take_off(&mut self, class: SizeClass, span: &Span, from: usize, to: usize) {
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

/// Calls `work` with the offset of each page that is resident, in order.
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
