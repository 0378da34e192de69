//! Statistics. Each is declared once, below; the struct, the text, the JSON and `docs/stats.md`
//! come from the declaration.

use core::fmt::{self, Display, Write};

use crate::cache;
use crate::engine::Engine;
use crate::options::StatsChoice;
use crate::os::Os;
use crate::region::Region;
use crate::size_class::{CLASSES, SizeClass, UNIT};
use crate::text::Line;

/// Declares the statistics that are one number each: name, unit, and what it says.
macro_rules! stats {
    ($($(#[doc = $doc:literal])+ $name:ident: $unit:ident,)+) => {
        /// A snapshot of an engine and its process.
        #[derive(Clone, Copy, Debug)]
        pub struct Stats {
            /// The front end in force: "percpu", "thread" or "slot".
            pub mode: &'static str,
            /// Why this one.
            pub why: &'static str,
            /// What picks the cache in percpu mode, "mm_cid" or "cpu_id"; else empty.
            pub id: &'static str,
            $($(#[doc = $doc])+ pub $name: u64,)+
            /// By class index; index 0 stays empty.
            pub classes: [ClassStats; CLASSES],
        }

        impl Stats {
            const EMPTY: Self = Self {
                mode: "", why: "", id: "", $($name: 0,)+
                classes: [ClassStats::EMPTY; CLASSES],
            };

            fn for_each(&self, mut show: impl FnMut(&'static str, Unit, u64)) {
                $(show(stringify!($name), Unit::$unit, self.$name);)+
            }

            /// The table in `docs/stats.md`.
            pub fn document(out: &mut impl Write) -> fmt::Result {
                writeln!(out, "| name | unit | meaning |\n|---|---|---|")?;
                $(writeln!(out, "| `{}` | {} | {} |", stringify!($name), Unit::$unit.name(),
                    concat!($($doc),+).trim())?;)+
                Ok(())
            }
        }
    };
}

stats! {
    /** In blocks that the program holds, as rounded up to their size classes. */
    live_bytes: Bytes,
    /** The most that `live_bytes` has been. Counted with `EBB_STATS` only, else 0. */
    peak_bytes: Bytes,
    /** In all blocks ever handed out. Counted with `EBB_STATS` only, else 0. */
    allocated_bytes: Bytes,
    /** In all blocks ever freed. Counted with `EBB_STATS` only, else 0. */
    freed_bytes: Bytes,
    /** In free blocks that caches hold, of virtual CPUs or of threads. */
    cached_bytes: Bytes,
    /** In free blocks of spans that also have blocks in use. */
    pinned_bytes: Bytes,
    /** In free runs that still are resident. */
    dirty_bytes: Bytes,
    /** In blocks above 64 KiB that the program holds, each a run of its own. */
    large_bytes: Bytes,
    /** Address space made usable, in use or not, resident or not. */
    committed_bytes: Bytes,
    /** Address space of the tables that describe it. */
    table_bytes: Bytes,
    /** Memory returned to the kernel since the start. */
    purged_bytes: Bytes,
    /** System calls that returned it. */
    purges: Count,
    /** Blocks above 64 KiB that the program holds. */
    large_blocks: Count,
    /** Spans, all size classes together. */
    spans: Count,
    /** Batches of blocks that went from spans to caches. */
    refills: Count,
    /** Batches that went back. */
    flushes: Count,
    /** Time since the process started. */
    elapsed_us: Micros,
    /** CPU time in user mode, of the process. */
    user_us: Micros,
    /** CPU time in the kernel, of the process. */
    system_us: Micros,
    /** Page faults of the process served without storage. */
    minor_faults: Count,
    /** Page faults of the process that read storage. */
    major_faults: Count,
    /** Resident memory of the process, whoever allocated it. */
    resident_bytes: Bytes,
    /** The most that `resident_bytes` has been. */
    peak_resident_bytes: Bytes,
}

/// One size class in a [`Stats`].
#[derive(Clone, Copy, Debug)]
pub struct ClassStats {
    /// Bytes in a block.
    pub block_bytes: u64,
    /// Spans cut into blocks of this class.
    pub spans: u64,
    /// Blocks that the program holds.
    pub live: u64,
    /// Free blocks in caches.
    pub cached: u64,
    /// Free blocks in spans.
    pub free: u64,
    /// Batches that went to caches.
    pub refills: u64,
    /// Batches that came back.
    pub flushes: u64,
}

impl ClassStats {
    const EMPTY: Self =
        Self { block_bytes: 0, spans: 0, live: 0, cached: 0, free: 0, refills: 0, flushes: 0 };

    /// Each number with its name and its width in the text: what text and JSON are made from.
    fn columns(&self) -> [(&'static str, usize, u64); 7] {
        [
            ("block_bytes", 11, self.block_bytes),
            ("spans", 8, self.spans),
            ("live", 10, self.live),
            ("cached", 10, self.cached),
            ("free", 10, self.free),
            ("refills", 10, self.refills),
            ("flushes", 10, self.flushes),
        ]
    }
}

/// A line of the table of size classes: the names of the columns, or the numbers of a class.
enum TableLine<'a> {
    Names,
    Numbers(&'a ClassStats),
}

impl Display for TableLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let class = match self {
            Self::Names => &ClassStats::EMPTY,
            Self::Numbers(class) => class,
        };
        for (i, (name, width, number)) in class.columns().into_iter().enumerate() {
            let space = if i > 0 { " " } else { "" };
            match self {
                Self::Names => write!(f, "{space}{name:>width$}")?,
                Self::Numbers(_) => write!(f, "{space}{number:>width$}")?,
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Bytes,
    Count,
    Micros,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Count => "count",
            Self::Micros => "µs",
        }
    }
}

/// A value with its unit, for people.
struct Shown(Unit, u64);

impl Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self(unit, value) = *self;
        match unit {
            Unit::Count => write!(f, "{value:>12}"),
            Unit::Micros => write!(f, "{:>12.3} s", value as f64 / 1e6),
            Unit::Bytes => match value {
                0..1024 => write!(f, "{value:>12} B"),
                1024..0x10_0000 => write!(f, "{:>12.1} KiB", value as f64 / 1024.0),
                _ => write!(f, "{:>12.1} MiB", value as f64 / (1024.0 * 1024.0)),
            },
        }
    }
}

impl<O: Os> Engine<O> {
    /// How many blocks of a class all caches hold; a glance while others work.
    pub(crate) fn held(&self, class: SizeClass) -> usize {
        let setup = self.setup();
        let slabs = self.region.slabs();
        // SAFETY: there are as many slabs.
        let shared = (0..setup.caches).map(|slab| unsafe { cache::held(slabs.add(slab), class) });
        let mut held = shared.sum();
        // SAFETY: it is a slab.
        self.thread_slabs.for_each(|slab| held += unsafe { cache::held(slab, class) });
        held
    }

    /// What is where right now. Parts are read one after the other, so while other threads
    /// work they may disagree by a few batches. Does not allocate.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::EMPTY;
        // Not for its own sake: what set-up decides may not be read while another thread is at it.
        if !self.ready() {
            return stats;
        }
        let totals = self.totals.read();
        let setup = self.setup();
        (stats.mode, stats.why, stats.id) = (setup.mode.name(), setup.why, setup.id);

        for class in SizeClass::all() {
            let counts = self.centrals[class.index()].spans().lock().counts;
            let cached = self.held(class).min(counts.claimed);
            let size = class.size() as u64;
            let row = ClassStats {
                block_bytes: size,
                spans: counts.spans as u64,
                live: (counts.claimed - cached) as u64,
                cached: cached as u64,
                free: (counts.spans * class.span_blocks() - counts.claimed) as u64,
                refills: counts.refills as u64,
                flushes: counts.flushes as u64,
            };
            stats.live_bytes += row.live * size;
            stats.cached_bytes += row.cached * size;
            stats.pinned_bytes += row.free * size;
            stats.spans += row.spans;
            stats.refills += row.refills;
            stats.flushes += row.flushes;
            stats.classes[class.index()] = row;
        }
        stats.large_blocks = totals.large_blocks as u64;
        stats.large_bytes = (totals.large_units * UNIT) as u64;
        stats.live_bytes += stats.large_bytes;
        stats.peak_bytes = totals.peak;
        stats.allocated_bytes = totals.allocated;
        stats.freed_bytes = totals.freed;

        let counts = self.pages.lock().counts;
        let committed = self.region.committed();
        stats.committed_bytes = committed as u64;
        stats.table_bytes = Region::table_bytes(committed / UNIT) as u64;
        stats.dirty_bytes = (counts.dirty * UNIT) as u64;
        stats.purged_bytes = (counts.purged * UNIT) as u64;
        stats.purges = counts.purges as u64;

        let usage = self.os.usage();
        (stats.elapsed_us, stats.user_us) = (usage.elapsed_us, usage.user_us);
        stats.system_us = usage.system_us;
        (stats.minor_faults, stats.major_faults) = (usage.minor_faults, usage.major_faults);
        (stats.resident_bytes, stats.peak_resident_bytes) = (usage.resident, usage.peak_resident);
        stats
    }

    /// Walks everything and panics at the first thing that is booked wrongly: for tests. Nobody
    /// else may use the engine meanwhile.
    pub fn check(&self) {
        let mut span_units = 0;
        for class in SizeClass::all() {
            let central = &self.centrals[class.index()];
            let free = central.check(&self.region);
            let counts = central.spans().lock().counts;
            assert_eq!(
                free + counts.claimed,
                counts.spans * class.span_blocks(),
                "blocks of class {} bytes",
                class.size()
            );
            assert!(self.held(class) <= counts.claimed, "caches hold more than was claimed");
            span_units += counts.spans * class.span_units() as usize;
        }
        let in_use = self.pages.lock().check(&self.region);
        assert_eq!(span_units + self.totals.read().large_units, in_use, "units in use");
    }

    /// Prints the statistics to standard error, as text or as one line of JSON.
    #[cold]
    pub fn print_stats(&self) {
        let stats = self.stats();
        if self.setup().options.stats == StatsChoice::Json {
            let mut out = Stream { os: &self.os, buffer: [0; 512], length: 0 };
            // Writing to a stream cannot fail.
            let _ = stats.write_json(&mut out);
            let _ = out.write_str("\n");
            out.flush();
        } else {
            stats.print(&self.os);
        }
    }
}

impl Stats {
    fn print(&self, os: &impl Os) {
        let by = if self.id.is_empty() { "" } else { " by " };
        Line::print(
            os,
            format_args!("{} mode {}{by}{} ({})", crate::VERSION, self.mode, self.id, self.why),
        );
        self.for_each(|name, unit, value| {
            Line::print(os, format_args!("{name:<20} {}", Shown(unit, value)));
        });
        Line::print(os, format_args!("{}", TableLine::Names));
        for row in self.used_classes() {
            Line::print(os, format_args!("{}", TableLine::Numbers(row)));
        }
    }

    /// The statistics as a JSON object: every name as above, and `classes`, a list.
    pub fn write_json(&self, out: &mut impl Write) -> fmt::Result {
        write!(
            out,
            "{{\"version\":\"{}\",\"mode\":\"{}\",\"why\":\"{}\",\"id\":\"{}\"",
            crate::VERSION,
            self.mode,
            self.why,
            self.id
        )?;
        let mut result = Ok(());
        self.for_each(|name, _, value| {
            result = result.and_then(|()| write!(out, ",\"{name}\":{value}"));
        });
        result?;
        out.write_str(",\"classes\":[")?;
        for (i, row) in self.used_classes().enumerate() {
            out.write_str(if i > 0 { ",{" } else { "{" })?;
            for (i, (name, _, number)) in row.columns().into_iter().enumerate() {
                write!(out, "{}\"{name}\":{number}", if i > 0 { "," } else { "" })?;
            }
            out.write_str("}")?;
        }
        out.write_str("]}")
    }

    fn used_classes(&self) -> impl Iterator<Item = &ClassStats> {
        self.classes.iter().filter(|row| row.spans + row.refills > 0)
    }
}

/// Standard error with a small buffer.
struct Stream<'a, O: Os> {
    os: &'a O,
    buffer: [u8; 512],
    length: usize,
}

impl<O: Os> Stream<'_, O> {
    fn flush(&mut self) {
        self.os.print(&self.buffer[..self.length]);
        self.length = 0;
    }
}

impl<O: Os> Write for Stream<'_, O> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            if self.length == self.buffer.len() {
                self.flush();
            }
            self.buffer[self.length] = byte;
            self.length += 1;
        }
        Ok(())
    }
}
