//! The ledger of a heap in another process, read through its beacon.

use crate::backend::chunks::Chunks;
use crate::backend::page_map::MapEntry;
use crate::backend::region::RegionAddresses;
use crate::backend::run::Run;
use crate::backend::span::Span;
use crate::frontend::slab::{HEADERS_AT, Header, SLAB_SHIFT};
use crate::frontend::thread_slabs::Shown;
use crate::size_class::{CLASSES, SizeClass, UNIT};
use crate::telemetry::beacon::Beacon;
use crate::telemetry::ledger::{
    CHECKED, HeldBack, Ledger, SAMPLED, Tables, for_each_resident, name_of_safety_mode,
};

/// Units whose entries are read at a time.
const AHEAD: usize = 128;
const MAP_ENTRY: usize = size_of::<u32>();
const RUN: usize = size_of::<Run>();
/// More than any process has: what says so was read in the middle of a change.
const SLABS_MOST: usize = 1 << 20;

/// The memory of a process.
pub trait Memory {
    /// Copies what lies at an address; false where nothing can be read, and then what was copied is
    /// unspecified.
    fn read(&mut self, address: usize, bytes: &mut [u8]) -> bool;

    /// Sets which pages from an address on are resident. Asked once at most for each page.
    fn resident(&mut self, address: usize, pages: &mut [bool]);
}

impl Ledger {
    /// The ledger of the heap with this beacon. The process may go on meanwhile.
    pub fn of(beacon: &Beacon, memory: &mut impl Memory) -> Self {
        let mut word = [0; size_of::<usize>()];
        let committed = match memory.read(beacon.places.committed_at, &mut word) {
            true => (usize::from_ne_bytes(word) / UNIT).min(beacon.places.units),
            false => 0,
        };
        let care = beacon.care_in(memory);
        let (map, runs) = ([0; MAP_ENTRY * AHEAD], [0; RUN * AHEAD]);
        Self::walk(&mut Remote { beacon, memory, committed, care, first: usize::MAX, map, runs })
    }
}

impl Beacon {
    fn care_in(&self, memory: &mut impl Memory) -> usize {
        let mut word = [0; size_of::<usize>()];
        let known = memory.read(self.careful.care_at, &mut word);
        if known { usize::from_ne_bytes(word) } else { 0 }
    }

    /// "check", "harden", "sample", or nothing: what is done with the blocks of the heap with this beacon.
    pub fn care(&self, memory: &mut impl Memory) -> &'static str {
        name_of_safety_mode(self.care_in(memory))
    }
}

struct Remote<'a, M> {
    beacon: &'a Beacon,
    memory: &'a mut M,
    committed: usize,
    care: usize,
    /// The first unit whose entries are at hand.
    first: usize,
    map: [u8; MAP_ENTRY * AHEAD],
    runs: [u8; RUN * AHEAD],
}

impl<M: Memory> Remote<'_, M> {
    fn read_ahead(&mut self, unit: usize) {
        self.first = unit;
        let units = (self.committed - unit).min(AHEAD);
        let places = &self.beacon.places;
        for (table, entry, copy) in
            [(places.map, MAP_ENTRY, &mut self.map[..]), (places.runs, RUN, &mut self.runs[..])]
        {
            let copy = &mut copy[..units * entry];
            if !self.memory.read(table.wrapping_add(unit * entry), copy) {
                copy.fill(0);
            }
        }
    }

    /// Books a slab: its resident bytes, and what it holds.
    fn book_slab(&mut self, address: usize, bytes: usize, held: &mut [usize; CLASSES]) -> u64 {
        let (page, mut resident, mut in_use) = (self.beacon.page, 0, false);
        for_each_resident(self, address, bytes, |offset| {
            resident += page as u64;
            in_use |= offset == 0;
        });
        // Of a slab that was never used not even the headers are there, and looking would change that.
        let mut headers = [0; size_of::<u64>() * CLASSES];
        if in_use && self.memory.read(address.wrapping_add(HEADERS_AT), &mut headers) {
            let (headers, _) = headers.as_chunks();
            for class in SizeClass::all() {
                let header = Header::from_bits(u64::from_ne_bytes(headers[class.index()]));
                held[class.index()] += header.held(class);
            }
        }
        resident
    }
}

impl<M: Memory> Tables for Remote<'_, M> {
    fn page(&self) -> usize {
        self.beacon.page
    }

    fn places(&self) -> RegionAddresses {
        self.beacon.places
    }

    fn committed(&self) -> usize {
        self.committed
    }

    fn run(&mut self, unit: usize) -> (Run, MapEntry) {
        if unit.checked_sub(self.first).is_none_or(|ahead| ahead >= AHEAD) {
            self.read_ahead(unit);
        }
        let at = unit - self.first;
        let (entries, _) = self.map.as_chunks();
        let (runs, _) = self.runs.as_chunks();
        (Run::from_bytes(&runs[at]), MapEntry::from_bits(u32::from_ne_bytes(entries[at])))
    }

    fn span(&mut self, unit: usize, _: SizeClass) -> Option<Span> {
        let mut bytes = [0; size_of::<Span>()];
        let address = self.beacon.places.spans.wrapping_add(unit * size_of::<Span>());
        self.memory.read(address, &mut bytes).then(|| Span::from_bytes(&bytes))
    }

    fn safety_mode(&self) -> usize {
        self.care
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
        if self.care == CHECKED {
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
        if self.care == SAMPLED && self.memory.read(self.beacon.careful.sampled_at, &mut words) {
            let (words, _) = words.as_chunks();
            let [start, bytes] = [0, 1].map(|nth| usize::from_ne_bytes(words[nth]));
            // More than any process has: what says so was read in the middle of a change.
            for_each_resident(self, start, bytes.min(1 << 30), |_| sampled += page as u64);
        }
        (tables, sampled)
    }

    fn slabs(&mut self) -> (u64, [usize; CLASSES]) {
        let (mut resident, mut held) = (0, [0; CLASSES]);
        let first = self.beacon.places.slabs;
        for nth in 0..self.beacon.slabs.min(SLABS_MOST) {
            resident +=
                self.book_slab(first.wrapping_add(nth << SLAB_SHIFT), 1 << SLAB_SHIFT, &mut held);
        }
        let mut record = [0; size_of::<Shown>()];
        if !self.memory.read(self.beacon.thread_slabs_at, &mut record) {
            return (resident, held);
        }
        let shown = Shown::from_bytes(&record);
        let page = self.beacon.page;
        if shown.records != 0 && shown.stride.is_multiple_of(page) && shown.room < SLABS_MOST {
            for nth in 0..shown.committed.min(shown.room) {
                resident +=
                    self.book_slab(shown.start + nth * shown.stride, shown.stride, &mut held);
            }
            let shown = Shown { committed: shown.committed.min(shown.room), ..shown };
            for_each_resident(self, shown.records, shown.records_bytes(page), |_| {
                resident += page as u64
            });
        }
        (resident, held)
    }

    fn resident(&mut self, address: usize, pages: &mut [bool]) {
        self.memory.resident(address, pages);
    }
}
