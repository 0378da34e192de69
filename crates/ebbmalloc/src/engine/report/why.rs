//! Explains the resident memory of the calling process: the ledger of its engine, and conclusions
//! from it.

use core::fmt::{self, Display, Write};

use crate::backend::chunks::Chunks;
use crate::backend::page_map::MapEntry;
use crate::backend::region::RegionAddresses;
use crate::backend::run::Run;
use crate::backend::span::Span;
use crate::central::ClassSpans;
use crate::engine::Engine;
use crate::engine::report::room::with_room;
use crate::engine::tuning::CONCLUSION_PERCENT_MIN;
use crate::figures::numbers::{Bytes, Decimal, percent};
use crate::frontend::slab::SLAB_SHIFT;
use crate::options::PROFILING;
use crate::platform::os::Os;
use crate::platform::sync::Ordering;
use crate::size_class::{CLASSES, SizeClass, UNIT};
use crate::telemetry::huge_report::HugeReport;
use crate::telemetry::ledger::{
    CHECKED, ClassLedger, HeldBack, Ledger, Part, SAMPLED, Tables, for_each_resident,
};

impl<O: Os> Engine<O> {
    /// The ledger of this engine's resident memory. Other threads may keep working, which makes it
    /// inexact.
    pub fn ledger(&self) -> Ledger {
        let mut ledger = Ledger::EMPTY;
        self.walk(&mut ledger);
        ledger
    }

    #[inline(never)]
    fn walk(&self, ledger: &mut Ledger) {
        if self.ready() {
            ledger.walk(&mut LiveTables(self));
        }
    }

    /// Writes where the resident memory of this process is, as text. Does not allocate, and needs
    /// little of the thread's stack.
    pub fn why(&self, out: &mut impl Write) -> fmt::Result {
        with_room(&self.os, &Ledger::EMPTY, |ledger| {
            self.walk(ledger);
            let resident = self.resident(ledger);
            let mut result = ledger.write_lines(resident, true, out);
            ledger.for_each_conclusion(resident, |conclusion| {
                result = result.and_then(|()| writeln!(out, "{conclusion}"));
            });
            match ledger.resident() {
                0 => result,
                _ => result.and_then(|()| writeln!(out, "{}", self.huge_report())),
            }
        })
    }

    fn huge_report(&self) -> HugeReport {
        let pages = self.pages();
        HugeReport::new(pages.counts.huge_pages, pages.huge.answer)
    }

    /// Writes the lines of the ledger alone, without meanings and conclusions.
    pub(crate) fn write_lines(&self, out: &mut impl Write) -> fmt::Result {
        with_room(&self.os, &Ledger::EMPTY, |ledger| {
            self.walk(ledger);
            ledger.write_lines(self.resident(ledger), false, out)
        })
    }

    /// Resident bytes of the whole process.
    fn resident(&self, ledger: &Ledger) -> u64 {
        self.os.usage().resident.max(ledger.resident())
    }

    /// Addresses and lengths of the ranges that hold slabs of CPUs, slabs of threads, and the
    /// records of the latter.
    pub(crate) fn slab_ranges(&self) -> [(usize, usize); 3] {
        let shown = self.thread_slabs.shown();
        [
            (self.region.slabs().addr(), self.slab_count() << SLAB_SHIFT),
            (shown.start, shown.committed * shown.stride),
            (shown.records, shown.records_bytes(self.os.page_size())),
        ]
    }

    /// A copy of the record of the span of this class that begins at this unit, if one does. Other
    /// threads may change the span at once.
    pub(crate) fn copy_of_span(&self, unit: usize, class: SizeClass) -> Option<Span> {
        let copy = |spans: &mut ClassSpans| spans.copy(&self.region, class, unit as u32);
        self.with_spans_of(unit as u32, self.region.entry(unit), class, copy)?
    }
}

/// The tables of an engine in use. Each read locks the structure that it reads, for a short time.
struct LiveTables<'a, O: Os>(&'a Engine<O>);

impl<O: Os> Tables for LiveTables<'_, O> {
    fn page(&self) -> usize {
        self.0.os.page_size()
    }

    fn places(&self) -> RegionAddresses {
        self.0.region.places()
    }

    fn committed(&self) -> usize {
        self.0.region.committed() / UNIT
    }

    fn run(&mut self, unit: usize) -> Option<(Run, MapEntry)> {
        let region = &self.0.region;
        let _pages = self.0.pages.lock();
        // SAFETY: the ledger asks for committed units only, and runs are written under this lock.
        Some((unsafe { *region.run(unit as u32) }, region.entry(unit)))
    }

    fn span(&mut self, unit: usize, class: SizeClass) -> Option<Span> {
        self.0.copy_of_span(unit, class)
    }

    fn safety_mode(&self) -> usize {
        self.0.published_safety_mode.load(Ordering::Relaxed)
    }

    fn held_back(&mut self) -> HeldBack {
        *self.0.check_table.lock().held_back()
    }

    fn careful_bytes(&mut self) -> (u64, u64) {
        let (engine, page) = (self.0, self.page() as u64);
        let (mut tables, mut sampled) = (0, 0);
        if self.safety_mode() == CHECKED {
            // Locked during the walk, since its chunks grow.
            let table = engine.check_table.lock();
            for (start, bytes) in table.chunks().into_iter().flat_map(Chunks::each) {
                for_each_resident(self, start, bytes, |_| tables += page);
            }
        }
        if self.safety_mode() == SAMPLED {
            let [start, bytes] =
                [0, 1].map(|nth| engine.samples.reserved()[nth].load(Ordering::Relaxed));
            for_each_resident(self, start, bytes, |_| sampled += page);
        }
        (tables, sampled)
    }

    #[inline(never)]
    fn profile_bytes(&mut self) -> u64 {
        let (engine, page, mut resident) = (self.0, self.page() as u64, 0);
        if !PROFILING {
            return 0;
        }
        // Locked during the walk, since its chunks grow.
        let table = engine.profile.table.lock();
        let chunks = table.all_chunks().into_iter().flat_map(Chunks::each);
        for (start, bytes) in chunks.chain([engine.profile.filter_range()]) {
            for_each_resident(self, start, bytes, |_| resident += page);
        }
        resident
    }

    fn slabs(&mut self) -> (u64, [usize; CLASSES]) {
        let (engine, page) = (self.0, self.page());
        let mut resident = 0;
        for (address, bytes) in engine.slab_ranges() {
            for_each_resident(self, address, bytes, |_| resident += page as u64);
        }
        let mut cached_blocks = [0; CLASSES];
        for class in SizeClass::all() {
            cached_blocks[class.index()] = engine.cached_blocks(class);
        }
        (resident, cached_blocks)
    }

    fn resident(&mut self, address: usize, pages: &mut [bool]) {
        self.0.os.resident(address, pages);
    }
}

/// A conclusion from a ledger: a fact, its cause, and what to do.
#[derive(Clone, Copy, Debug)]
pub struct Conclusion {
    /// The bytes that it is about.
    pub bytes: u64,
    share: Decimal,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Pinned {
        size: usize,
        class: ClassLedger,
    },
    Cached,
    FreeRuns,
    Slabs,
    LargeRounding,
    HugePages,
    SmallRounding,
    /// Blocks in use: the size and number of those of the class with the most bytes. `size` is 0 if
    /// large blocks have more.
    InUse {
        size: usize,
        blocks: u64,
    },
}

impl Ledger {
    /// Writes the ledger's lines, with or without their meanings. `resident` is that of the
    /// process, in bytes.
    fn write_lines(&self, resident: u64, meaning: bool, out: &mut dyn Write) -> fmt::Result {
        if self.resident() == 0 {
            // For instance, a sandbox refuses mincore(2). "0 bytes are ebbmalloc's" would be wrong.
            return writeln!(
                out,
                "{} resident; the kernel does not say which pages",
                Bytes(resident)
            );
        }
        writeln!(out, "{} resident, of which", Bytes(resident))?;
        let rest = Part {
            name: "rest",
            label: "not ebbmalloc's",
            bytes: resident - self.resident(),
            meaning: "stacks, files, other mappings; `ebb why PID` tells them apart.",
            knob: "",
        };
        for part in self.parts().iter().chain([&rest]).filter(|part| part.bytes > 0) {
            let (bytes, share) = (Bytes(part.bytes), percent(part.bytes, resident, 1));
            write!(out, "{bytes:>8} {share:>5} %  {}", part.label)?;
            if meaning {
                let change = if part.knob.is_empty() { "" } else { " To change it: " };
                write!(out, ": {}{change}{}", part.meaning, part.knob)?;
            }
            out.write_str("\n")?;
        }
        Ok(())
    }

    /// Calls `work` with each conclusion: those about pinned memory first, by falling size, then
    /// the rest. `resident` is that of the process, in bytes.
    pub fn for_each_conclusion(&self, resident: u64, mut work: impl FnMut(Conclusion)) {
        let matters =
            |bytes: u64, min_percent: u64| bytes > 0 && 100 * bytes >= min_percent * resident;
        let mut conclude = |bytes: u64, kind: Kind| {
            work(Conclusion { bytes, share: percent(bytes, resident, 0), kind });
        };
        let mut below = (u64::MAX, 0);
        // A selection sort, which needs no memory: finds the next largest below the last.
        while let Some((next, class)) = SizeClass::all()
            .map(|class| ((self.classes[class.index()].pinned_bytes, class.index()), class))
            .filter(|&(row, _)| row < below && matters(row.0, CONCLUSION_PERCENT_MIN))
            .max_by_key(|&(row, _)| row)
        {
            conclude(
                next.0,
                Kind::Pinned { size: class.size(), class: self.classes[class.index()] },
            );
            below = next;
        }
        for (bytes, min_percent, kind) in [
            (self.cached, CONCLUSION_PERCENT_MIN, Kind::Cached),
            (self.free_runs, 2 * CONCLUSION_PERCENT_MIN, Kind::FreeRuns),
            (self.slabs, CONCLUSION_PERCENT_MIN, Kind::Slabs),
            (self.large_rounding, CONCLUSION_PERCENT_MIN, Kind::LargeRounding),
            (self.huge_pages, CONCLUSION_PERCENT_MIN, Kind::HugePages),
            (self.small_rounding_most, 2 * CONCLUSION_PERCENT_MIN, Kind::SmallRounding),
        ] {
            if matters(bytes, min_percent) {
                conclude(bytes, kind);
            }
        }
        let in_use = self.small + self.large;
        if matters(in_use, 50) {
            let largest =
                SizeClass::all().max_by_key(|class| self.classes[class.index()].live_bytes);
            let (size, row) = largest.map_or((0, &ClassLedger::EMPTY), |class| {
                (class.size(), &self.classes[class.index()])
            });
            let (size, blocks) =
                if row.live_bytes > self.large { (size, row.live) } else { (0, self.large_blocks) };
            conclude(in_use, Kind::InUse { size, blocks });
        }
    }
}

impl Display for Conclusion {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} % ({}) ", self.share, Bytes(self.bytes))?;
        match self.kind {
            Kind::Pinned { size, class } => {
                let blocks = class.live + class.cached;
                let full = percent(blocks, class.blocks(), 0);
                write!(f, "is free memory pinned by {} blocks of {size} bytes", Grouped(blocks))?;
                if class.cached > 0 {
                    write!(f, ", {} of them free and in caches", Grouped(class.cached))?;
                }
                let spans = Grouped(class.spans);
                write!(f, ": their {spans} spans are {full} % full on average")?;
                if class.sparse_spans > 0 {
                    write!(
                        f,
                        ", and {} blocks alone keep {} spans that are less than half full",
                        Grouped(class.sparse_blocks),
                        Grouped(class.sparse_spans)
                    )?;
                }
                if class.cached > class.live {
                    return f.write_str(
                        ". Most of these blocks are free and in caches: ebb_malloc_trim() returns \
                         them to their spans.",
                    );
                }
                f.write_str(
                    ". They were allocated among blocks since freed: allocate long-lived blocks \
                     together, or copy the survivors.",
                )
            }
            Kind::Cached => f.write_str(
                "is in free blocks in caches. ebb_malloc_trim() empties them; EBB_MODE=percpu or \
                 slot keeps one per CPU instead of one per thread.",
            ),
            Kind::FreeRuns => f.write_str(
                "is free memory not yet returned to the kernel. ebb_malloc_trim() returns it at \
                 once; programs with threads do within seconds, others as they free more.",
            ),
            Kind::Slabs => f.write_str(
                "is in slabs, where caches keep their lists. EBB_MODE=percpu or slot has one per \
                 CPU, thread one per thread.",
            ),
            Kind::LargeRounding => f.write_str(
                "lies behind large blocks, up to the next 64 KiB, or in gaps between blocks below \
                 512 KiB. Programs with threads return it a second or two after a block last \
                 changed size, others by ebb_idle() or ebb_malloc_trim(). From 512 KiB on choose \
                 sizes just below a multiple of 64 KiB.",
            ),
            Kind::HugePages => f.write_str(
                "is unused memory in huge pages, which make 2 MiB resident when a part is touched. \
                 EBB_HUGE=never asks the kernel for none.",
            ),
            Kind::SmallRounding => f.write_str(
                "at most is lost by rounding small requests up to size classes. Sizes that are \
                 multiples of 16 up to 128, or the block sizes of the table, lose nothing.",
            ),
            Kind::InUse { size: 0, blocks } => write!(
                f,
                "is in blocks that the program holds, most of it in {} above 64 KiB. Only the \
                 program can give that back.",
                Grouped(blocks)
            ),
            Kind::InUse { size, blocks } => write!(
                f,
                "is in blocks that the program holds, the most of one size in {} of {size} bytes. \
                 Only the program can give that back.",
                Grouped(blocks)
            ),
        }
    }
}

/// Shows a number with commas between thousands.
struct Grouped(u64);

impl Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.0 < 1000 {
            return write!(f, "{}", self.0);
        }
        write!(f, "{},{:03}", Grouped(self.0 / 1000), self.0 % 1000)
    }
}
