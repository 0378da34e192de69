//! Where resident memory is, for the process that asks about itself: the ledger of its own engine, and
//! what a good engineer would conclude from one.

use core::fmt::{self, Display, Write};

use crate::backend::chunks::Chunks;
use crate::backend::page_map::MapEntry;
use crate::backend::region::RegionAddresses;
use crate::backend::run::Run;
use crate::backend::span::Span;
use crate::engine::Engine;
use crate::engine::tuning::CONCLUSION_PERCENT_MIN;
use crate::frontend::slab::SLAB_SHIFT;
use crate::platform::message::{Bytes, Decimal, percent};
use crate::platform::os::Os;
use crate::platform::sync::Ordering;
use crate::size_class::{CLASSES, SizeClass, UNIT};
use crate::telemetry::ledger::{
    CHECKED, ClassLedger, HeldBack, Ledger, Part, SAMPLED, Tables, for_each_resident,
};

impl<O: Os> Engine<O> {
    /// Where this engine's resident memory is. Other threads may go on; what they do meanwhile may blur it.
    pub fn ledger(&self) -> Ledger {
        if self.ready() { Ledger::walk(&mut Live(self)) } else { Ledger::EMPTY }
    }

    /// Writes where the resident memory of this process is, as text. Allocates nothing itself.
    pub fn why(&self, out: &mut impl Write) -> fmt::Result {
        let ledger = self.ledger();
        let resident = self.resident(&ledger);
        ledger.write_lines(resident, true, out)?;
        let mut result = Ok(());
        ledger.for_each_conclusion(resident, |conclusion| {
            result = result.and_then(|()| writeln!(out, "{conclusion}"));
        });
        result
    }

    /// Only the lines, and not what they mean.
    #[inline(never)]
    pub(crate) fn write_lines(&self, out: &mut impl Write) -> fmt::Result {
        let ledger = self.ledger();
        ledger.write_lines(self.resident(&ledger), false, out)
    }

    /// What is resident of the whole process.
    fn resident(&self, ledger: &Ledger) -> u64 {
        self.os.usage().resident.max(ledger.resident())
    }

    /// Addresses and lengths of what there are slabs in: of CPUs, of threads, and the list of the latter.
    pub(crate) fn slab_places(&self) -> [(usize, usize); 3] {
        let shown = self.thread_slabs.shown();
        [
            (self.region.slabs().addr(), self.slab_count() << SLAB_SHIFT),
            (shown.start, shown.committed * shown.stride),
            (shown.records, shown.records_bytes(self.os.page_size())),
        ]
    }
}

/// The tables of an engine in use. Each look is under the lock of what it looks at, and none is held for
/// long.
struct Live<'a, O: Os>(&'a Engine<O>);

impl<O: Os> Tables for Live<'_, O> {
    fn page(&self) -> usize {
        self.0.os.page_size()
    }

    fn places(&self) -> RegionAddresses {
        self.0.region.places()
    }

    fn committed(&self) -> usize {
        self.0.region.committed() / UNIT
    }

    fn run(&mut self, unit: usize) -> (Run, MapEntry) {
        let region = &self.0.region;
        let _pages = self.0.pages.lock();
        // SAFETY: committed, and the lock is held under which runs are written.
        (unsafe { *region.run(unit as u32) }, region.entry(unit))
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
            // Held all the time: what it consists of grows.
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

    fn slabs(&mut self) -> (u64, [usize; CLASSES]) {
        let (engine, page) = (self.0, self.page());
        let mut resident = 0;
        for (address, bytes) in engine.slab_places() {
            for_each_resident(self, address, bytes, |_| resident += page as u64);
        }
        let mut held = [0; CLASSES];
        for class in SizeClass::all() {
            held[class.index()] = engine.cached_blocks(class);
        }
        (resident, held)
    }

    fn resident(&mut self, address: usize, pages: &mut [bool]) {
        self.0.os.resident(address, pages);
    }
}

/// Something worth saying about a ledger: a fact, its cause, and what to do.
#[derive(Clone, Copy, Debug)]
pub struct Conclusion {
    /// What it is about, in bytes.
    pub bytes: u64,
    share: Decimal,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Pinned { size: usize, class: ClassLedger },
    Cached,
    FreeRuns,
    Slabs,
    LargeRounding,
    HugePages,
    SmallRounding,
    Held { size: usize, blocks: u64 },
}

impl Ledger {
    /// Writes its lines, where `resident` bytes of the process are resident in all: with what they mean, or without.
    fn write_lines(&self, resident: u64, meaning: bool, out: &mut dyn Write) -> fmt::Result {
        if self.resident() == 0 {
            // As where a sandbox refuses mincore(2): to say that nothing is ours would be wrong.
            return writeln!(out, "{} resident; what of it is whose is not known", Bytes(resident));
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

    /// Tells what is worth saying, where `resident` bytes of the process are resident in all; the largest
    /// first among pinned memory, then the rest.
    pub fn for_each_conclusion(&self, resident: u64, mut tell: impl FnMut(Conclusion)) {
        let worth = |bytes: u64, least: u64| bytes > 0 && 100 * bytes >= least * resident;
        let mut say = |bytes: u64, kind: Kind| {
            tell(Conclusion { bytes, share: percent(bytes, resident, 0), kind });
        };
        let mut below = (u64::MAX, 0);
        // Selection, for want of memory to sort in: the next largest below the last.
        while let Some((next, class)) = SizeClass::all()
            .map(|class| ((self.classes[class.index()].pinned_bytes, class.index()), class))
            .filter(|&(row, _)| row < below && worth(row.0, CONCLUSION_PERCENT_MIN))
            .max_by_key(|&(row, _)| row)
        {
            say(next.0, Kind::Pinned { size: class.size(), class: self.classes[class.index()] });
            below = next;
        }
        for (bytes, least, kind) in [
            (self.cached, CONCLUSION_PERCENT_MIN, Kind::Cached),
            (self.free_runs, 2 * CONCLUSION_PERCENT_MIN, Kind::FreeRuns),
            (self.slabs, CONCLUSION_PERCENT_MIN, Kind::Slabs),
            (self.large_rounding, CONCLUSION_PERCENT_MIN, Kind::LargeRounding),
            (self.huge_pages, CONCLUSION_PERCENT_MIN, Kind::HugePages),
            (self.small_rounding_most, 2 * CONCLUSION_PERCENT_MIN, Kind::SmallRounding),
        ] {
            if worth(bytes, least) {
                say(bytes, kind);
            }
        }
        let held = self.small + self.large;
        if worth(held, 50) {
            let most = SizeClass::all().max_by_key(|class| self.classes[class.index()].live_bytes);
            let (size, row) = most.map_or((0, &ClassLedger::EMPTY), |class| {
                (class.size(), &self.classes[class.index()])
            });
            let (size, blocks) =
                if row.live_bytes > self.large { (size, row.live) } else { (0, self.large_blocks) };
            say(held, Kind::Held { size, blocks });
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
                    write!(f, ", and {} blocks alone keep {} spans that are less than half full", Grouped(class.sparse_blocks), Grouped(class.sparse_spans))?;
                }
                if class.cached > class.live {
                    return f.write_str(". Most of these blocks are free and lie in caches: ebb_malloc_trim() sets them loose.");
                }
                f.write_str(". They were allocated among others that are free by now: allocate what lives long together, or copy the few survivors once the rest is freed.")
            }
            Kind::Cached => f.write_str("is free blocks in caches. ebb_malloc_trim() empties them; EBB_MODE=percpu or slot keeps one a CPU, not one a thread."),
            Kind::FreeRuns => f.write_str("is free memory that was not given back to the kernel yet. ebb_malloc_trim() gives it back at once. Else it goes in the next seconds where the program has threads, as it goes on freeing where it has one."),
            Kind::Slabs => f.write_str("is what caches need for their lists. EBB_MODE=percpu or slot has one a CPU, thread one a thread."),
            Kind::LargeRounding => f.write_str("lies between the ends of large blocks and the next 64 KiB. It goes back once a block has had its size for a second or two in programs with threads, in others by ebb_idle() or ebb_malloc_trim(). Sizes just below a multiple of 64 KiB lose the least."),
            Kind::HugePages => f.write_str("is the rest of huge pages: nobody uses it, but the kernel gives 2 MiB where a part is touched. The sysctl file /sys/kernel/mm/transparent_hugepage/enabled decides."),
            Kind::SmallRounding => f.write_str("at most is lost by rounding small requests up to size classes. Sizes that are multiples of 16 up to 128, or the block sizes of the table, lose nothing."),
            Kind::Held { size: 0, blocks } => write!(f, "is in blocks that the program holds, most of it in {} above 64 KiB. Only the program can give that back.", Grouped(blocks)),
            Kind::Held { size, blocks } => write!(f, "is in blocks that the program holds, the most of one size in {} of {size} bytes. Only the program can give that back.", Grouped(blocks)),
        }
    }
}

/// A number with its thousands set apart.
struct Grouped(u64);

impl Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.0 < 1000 {
            return write!(f, "{}", self.0);
        }
        write!(f, "{},{:03}", Grouped(self.0 / 1000), self.0 % 1000)
    }
}
