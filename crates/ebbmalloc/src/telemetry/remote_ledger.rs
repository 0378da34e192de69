//! Makes the ledger of an engine in another process, which it reads through the beacon.
//!
//! What it reads may be in the midst of a change, and the process may lie. So each number is
//! bounded, and the walk ends where nothing can be read.

use crate::backend::chunks::Chunks;
use crate::backend::huge_pages::HugeAnswer;
use crate::backend::page_map::MapEntry;
use crate::backend::region::{Region, RegionAddresses};
use crate::backend::run::Run;
use crate::backend::span::Span;
use crate::frontend::slab::{HEADERS_AT, Header, SLAB_SHIFT};
use crate::frontend::thread_slabs::ShownSlabs;
use crate::size_class::{CLASSES, SizeClass, UNIT};
use crate::telemetry::beacon::Beacon;
use crate::telemetry::huge_report::HugeReport;
use crate::telemetry::ledger::{
    CHECKED, HeldBack, Ledger, SAMPLED, Tables, for_each_resident, name_of_safety_mode,
};
use crate::telemetry::profile::state::FILTER_BYTES;

/// Units whose map entries and runs are read at a time.
const UNITS_AHEAD: usize = 128;
const MAP_ENTRY_BYTES: usize = size_of::<u32>();
const RUN_BYTES: usize = size_of::<Run>();
/// More slabs of CPUs than any process has: a larger number was read in the middle of a change, or
/// the process lies.
const CPU_SLABS_MAX: usize = 1 << 16;
/// More bytes than any reservation for sampled blocks has, for the same reason.
const SAMPLED_BYTES_MAX: usize = 1 << 30;

/// More bytes than any table of a heap profile has, for the same reason.
const PROFILE_BYTES_MAX: usize = 256 << 20;

/// The memory of a process.
pub trait ProcessMemory {
    /// Copies memory at an address. Returns false if it cannot be read; then `bytes` is
    /// unspecified.
    fn read(&mut self, address: usize, bytes: &mut [u8]) -> bool;

    /// Sets which pages are resident, beginning with the page at `address`. Called at most once
    /// for each page.
    fn resident(&mut self, address: usize, pages: &mut [bool]);
}

impl Ledger {
    /// Makes the ledger of the engine with this beacon. Its process may run meanwhile.
    pub fn of(beacon: &Beacon, memory: &mut impl ProcessMemory) -> Self {
        let mut word = [0; size_of::<usize>()];
        let committed = match memory.read(beacon.places.committed_at, &mut word) {
            true => (usize::from_ne_bytes(word) / UNIT).min(beacon.places.units),
            false => 0,
        };
        let safety_mode = beacon.safety_mode_in(memory);
        let (map, runs) = ([0; MAP_ENTRY_BYTES * UNITS_AHEAD], [0; RUN_BYTES * UNITS_AHEAD]);
        let first = usize::MAX;
        let mut ledger = Self::EMPTY;
        ledger.walk(&mut RemoteTables { beacon, memory, committed, safety_mode, first, map, runs });
        ledger
    }
}

impl Beacon {
    fn safety_mode_in(&self, memory: &mut impl ProcessMemory) -> usize {
        word(memory, self.careful.safety_mode_at)
    }

    /// The limit of the engine with this beacon in bytes (`EBB_LIMIT`); 0 for none.
    pub fn limit_bytes(&self, memory: &mut impl ProcessMemory) -> u64 {
        (word(memory, self.careful.limit_at) as u64).saturating_mul(Region::UNIT_COST as u64)
    }

    /// What the engine with this beacon has in huge pages, and why not more.
    pub fn huge_pages(&self, memory: &mut impl ProcessMemory) -> HugeReport {
        let [count, answer] = self.careful.huge_at.map(|at| word(memory, at));
        HugeReport::new(count, HugeAnswer::from_word(answer))
    }

    /// The safety mode of the engine with this beacon: "check", "harden", "sample", or empty.
    pub fn care(&self, memory: &mut impl ProcessMemory) -> &'static str {
        name_of_safety_mode(self.safety_mode_in(memory))
    }
}

/// A word of another process; 0 if it cannot be read.
fn word(memory: &mut impl ProcessMemory, address: usize) -> usize {
    let mut word = [0; size_of::<usize>()];
    if memory.read(address, &mut word) { usize::from_ne_bytes(word) } else { 0 }
}

/// The tables of an engine in another process.
struct RemoteTables<'a, M> {
    beacon: &'a Beacon,
    memory: &'a mut M,
    /// Committed units.
    committed: usize,
    safety_mode: usize,
    /// The first unit whose entries were read ahead.
    first: usize,
    map: [u8; MAP_ENTRY_BYTES * UNITS_AHEAD],
    runs: [u8; RUN_BYTES * UNITS_AHEAD],
}

impl<M: ProcessMemory> RemoteTables<'_, M> {
    /// Reads map entries and runs of the next units, which are all there for committed units.
    /// Returns whether that succeeded.
    fn read_ahead(&mut self, unit: usize) -> bool {
        self.first = unit;
        let units = (self.committed - unit).min(UNITS_AHEAD);
        let addresses = &self.beacon.places;
        let mut read = |table: usize, copy: &mut [u8], entry| {
            self.memory.read(table.wrapping_add(unit * entry), &mut copy[..units * entry])
        };
        read(addresses.map, &mut self.map, MAP_ENTRY_BYTES)
            && read(addresses.runs, &mut self.runs, RUN_BYTES)
    }

    /// Returns the resident bytes of a slab, and adds the blocks in it to `cached`.
    fn book_slab(&mut self, address: usize, bytes: usize, cached: &mut [usize; CLASSES]) -> u64 {
        let (page, mut resident, mut in_use) = (self.beacon.page, 0, false);
        for_each_resident(self, address, bytes, |offset| {
            resident += page as u64;
            in_use |= offset == 0;
        });
        // Not even the headers of an unused slab are resident, and reading would make them so.
        let mut headers = [0; size_of::<u64>() * CLASSES];
        if in_use && self.memory.read(address.wrapping_add(HEADERS_AT), &mut headers) {
            let (headers, _) = headers.as_chunks();
            for class in SizeClass::all() {
                let header = Header::from_bits(u64::from_ne_bytes(headers[class.index()]));
                cached[class.index()] += header.len(class);
            }
        }
        resident
    }
}

impl<M: ProcessMemory> Tables for RemoteTables<'_, M> {
    fn page(&self) -> usize {
        self.beacon.page
    }

    fn places(&self) -> RegionAddresses {
        self.beacon.places
    }

    fn committed(&self) -> usize {
        self.committed
    }

    fn run(&mut self, unit: usize) -> Option<(Run, MapEntry)> {
        if unit.checked_sub(self.first).is_none_or(|ahead| ahead >= UNITS_AHEAD)
            && !self.read_ahead(unit)
        {
            return None;
        }
        let at = unit - self.first;
        let (entries, _) = self.map.as_chunks();
        let (runs, _) = self.runs.as_chunks();
        Some((Run::from_bytes(&runs[at]), MapEntry::from_bits(u32::from_ne_bytes(entries[at]))))
    }

    fn span(&mut self, unit: usize, _: SizeClass) -> Option<Span> {
        let mut bytes = [0; size_of::<Span>()];
        let address = self.beacon.places.spans.wrapping_add(unit * size_of::<Span>());
        self.memory.read(address, &mut bytes).then(|| Span::from_bytes(&bytes))
    }

    fn safety_mode(&self) -> usize {
        self.safety_mode
    }

    fn held_back(&mut self) -> HeldBack {
        let mut record = [0; size_of::<HeldBack>()];
        match self.memory.read(self.beacon.careful.held_back_at, &mut record) {
            true => HeldBack::from_bytes(&record),
            false => HeldBack::NONE,
        }
    }

    fn careful_bytes(&mut self) -> (u64, u64) {
        let (page, mut tables, mut sampled) = (self.beacon.page, 0, 0);
        if self.safety_mode == CHECKED {
            for at in self.beacon.careful.chunks_at {
                let mut record = [0; Chunks::BYTES];
                if !self.memory.read(at, &mut record) {
                    continue;
                }
                for (start, bytes) in Chunks::ranges(&record) {
                    for_each_resident(self, start, bytes, |_| tables += page as u64);
                }
            }
        }
        let mut words = [0; 2 * size_of::<usize>()];
        if self.safety_mode == SAMPLED
            && self.memory.read(self.beacon.careful.sampled_at, &mut words)
        {
            let (words, _) = words.as_chunks();
            let [start, bytes] = [0, 1].map(|nth| usize::from_ne_bytes(words[nth]));
            for_each_resident(self, start, bytes.min(SAMPLED_BYTES_MAX), |_| {
                sampled += page as u64
            });
        }
        (tables, sampled)
    }

    fn profile_bytes(&mut self) -> u64 {
        let (page, mut resident) = (self.beacon.page as u64, 0);
        let mut left_bytes = PROFILE_BYTES_MAX;
        for at in self.beacon.profile.memory_at {
            let mut record = [0; Chunks::BYTES];
            if self.memory.read(at, &mut record) {
                for (start, bytes) in Chunks::ranges(&record) {
                    let bytes = bytes.min(left_bytes);
                    left_bytes -= bytes;
                    for_each_resident(self, start, bytes, |_| resident += page);
                }
            }
        }
        let start = word(self.memory, self.beacon.profile.filter_at);
        if start != 0 {
            for_each_resident(self, start, FILTER_BYTES, |_| resident += page);
        }
        resident
    }

    fn slabs(&mut self) -> (u64, [usize; CLASSES]) {
        let (mut resident, mut cached) = (0, [0; CLASSES]);
        let first = self.beacon.places.slabs;
        for nth in 0..self.beacon.slabs.min(CPU_SLABS_MAX) {
            resident +=
                self.book_slab(first.wrapping_add(nth << SLAB_SHIFT), 1 << SLAB_SHIFT, &mut cached);
        }
        let mut record = [0; size_of::<ShownSlabs>()];
        if !self.memory.read(self.beacon.thread_slabs_at, &mut record) {
            return (resident, cached);
        }
        let page = self.beacon.page;
        let Some(shown) = ShownSlabs::from_bytes(&record, page) else { return (resident, cached) };
        for nth in 0..shown.committed {
            let start = shown.start.wrapping_add(nth * shown.stride);
            resident += self.book_slab(start, shown.stride, &mut cached);
        }
        for_each_resident(self, shown.records, shown.records_bytes(page), |_| {
            resident += page as u64
        });
        (resident, cached)
    }

    fn resident(&mut self, address: usize, pages: &mut [bool]) {
        self.memory.resident(address, pages);
    }
}
