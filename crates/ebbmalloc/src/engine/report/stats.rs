//! Gathers statistics and prints them. `figures/stats` declares them, and has their formats.

use core::fmt::{self, Write};

use crate::backend::region::Region;
use crate::backend::tuning::HUGE_UNITS;
use crate::central::CentralCounts;
use crate::engine::Engine;
use crate::figures::choice::Choice;
use crate::figures::process::ProcessName;
use crate::figures::stats::{ClassStats, Stats};
use crate::options::{StatsChoice, TELLING};
use crate::platform::message::Line;
use crate::platform::os::{Os, Writer};
use crate::platform::sync::Ordering;
use crate::size_class::{CLASSES, SizeClass, UNIT};
use crate::telemetry::ledger::rounding_most;

impl<O: Os> Engine<O> {
    /// A snapshot of all statistics. Its parts are read one after the other: while other threads
    /// work, they may disagree by a few batches. Does not allocate.
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats_of_heap();
        if stats.choice.mode.is_empty() {
            return stats; // Before set-up.
        }
        stats.choice.kernel = self.os.kernel();
        stats.process = ProcessName::of(&self.os);
        let usage = self.os.usage();
        (stats.elapsed_us, stats.user_us) = (usage.elapsed_us, usage.user_us);
        stats.system_us = usage.system_us;
        (stats.minor_faults, stats.major_faults) = (usage.minor_faults, usage.major_faults);
        (stats.resident_bytes, stats.peak_resident_bytes) = (usage.resident, usage.peak_resident);
        stats
    }

    /// A snapshot without the kernel's figures for the process, and without its version. Makes no
    /// system call.
    #[inline(always)]
    pub fn stats_of_heap(&self) -> Stats {
        self.gather::<true>()
    }

    /// As [`Engine::stats_of_heap`], in microseconds: looks at no span. With OS pages above 4 KiB,
    /// holes are upper bounds.
    pub fn stats_at_once(&self) -> Stats {
        self.gather::<false>()
    }

    /// Gathers statistics. `WALKS`: looks at each span to find its holes.
    #[inline(never)]
    fn gather<const WALKS: bool>(&self) -> Stats {
        let mut stats = Stats::EMPTY;
        // The engine's set-up may not be read while another thread performs it.
        if !self.ready() {
            return stats;
        }
        let counters = self.counters.read();
        let setup = self.setup();
        stats.choice = setup.choice.unwrap_or(Choice::UNSET);

        let in_heaps = self.sum_of_heaps(&mut stats);
        let in_holes = if WALKS { self.sum_of_holes() } else { self.counted_holes() };
        for class in SizeClass::all() {
            let counts = self.centrals[class.index()].spans().lock().counts;
            let heaps = in_heaps[class.index()];
            let cached = self.cached_blocks(class).min(counts.claimed);
            let size = class.size() as u64;
            let free = (counts.free() + heaps.free()) as u64;
            let row = ClassStats {
                block_bytes: size,
                spans: (counts.spans + heaps.spans) as u64,
                live: (counts.claimed - cached + heaps.claimed) as u64,
                cached: cached as u64,
                free,
                hole_bytes: in_holes[class.index()].min(free * size),
                refills: counts.refills as u64,
                flushes: counts.flushes as u64,
            };
            stats.live_bytes += row.live * size;
            stats.cached_bytes += row.cached * size;
            stats.pinned_bytes += row.free * size - row.hole_bytes;
            stats.hole_bytes += row.hole_bytes;
            stats.rounding_bytes += rounding_most(class, row.live);
            stats.spans += row.spans;
            stats.dug_bytes += counts.purged as u64;
            stats.refills += row.refills;
            stats.flushes += row.flushes;
            stats.classes[class.index()] = row;
        }
        stats.large_blocks = counters.large_blocks as u64;
        stats.large_bytes = (counters.large_units * UNIT) as u64;
        stats.rounding_bytes += (stats.large_blocks * UNIT as u64).min(stats.large_bytes);
        stats.live_bytes += stats.large_bytes;
        stats.peak_bytes = counters.peak;
        stats.allocated_bytes = counters.allocated;
        stats.freed_bytes = counters.freed;
        stats.refusals = counters.refusals;
        stats.dug_bytes += counters.purged;
        {
            let slots = self.samples.slots.lock();
            (stats.sampled_blocks, stats.sampled_bytes) = (slots.sampled, slots.live_bytes as u64);
        }

        if let Some(header) = self.profile_header() {
            stats.profile_mean_bytes = if header.is_on { header.mean_bytes } else { 0 };
            stats.profiled_blocks = header.sampled_blocks;
            stats.profile_losses = header.dropped_stacks + header.dropped_samples;
        }

        let (counts, limit, memory_bytes, refault_units, huge) = {
            let pages = self.pages.lock();
            let retention = &pages.retention;
            let refault_units = retention.refaults.units();
            (pages.counts, pages.limit, retention.limit_bytes, refault_units, pages.huge.totals)
        };
        stats.huge_bytes = (counts.huge_pages * HUGE_UNITS as usize * UNIT) as u64;
        stats.huge_pages = huge.pages as u64;
        stats.huge_refusals = huge.refusals as u64;
        stats.huge_us = huge.ns / 1000;
        stats.memory_bytes = memory_bytes as u64;
        stats.wanted_bytes = (refault_units * UNIT) as u64;
        let in_blocks =
            stats.live_bytes + stats.cached_bytes + stats.pinned_bytes + stats.hole_bytes;
        stats.end_bytes = ((counts.in_use * UNIT) as u64).saturating_sub(in_blocks);
        stats.live_bytes += stats.sampled_bytes;
        stats.held_bytes = (counts.held() * Region::UNIT_COST) as u64;
        stats.limit_bytes = limit.map_or(0, |units| units.get() * Region::UNIT_COST) as u64;
        stats.choice.limit_bytes = stats.limit_bytes;
        let committed = self.region.committed();
        stats.committed_bytes = (counts.mapped(committed / UNIT) * UNIT) as u64;
        stats.table_bytes = Region::table_bytes(committed / UNIT) as u64;
        stats.slab_bytes = self.slab_ranges().iter().map(|&(_, bytes)| bytes as u64).sum();
        stats.dirty_bytes = (counts.dirty * UNIT) as u64;
        stats.purged_bytes = (counts.purged * UNIT) as u64;
        stats.purges = counts.purges as u64;
        stats
    }

    /// Adds heaps and the bytes of their blocks to `stats`. Returns the counts of their spans by
    /// class.
    fn sum_of_heaps(&self, stats: &mut Stats) -> [CentralCounts; CLASSES] {
        let mut sums = [CentralCounts::default(); CLASSES];
        let heaps = self.heaps.lock();
        for heap in heaps.each(&self.region) {
            let contents = heap.contents().lock();
            if !self.profile.is_heap(heap.unit()) {
                stats.heaps += 1;
                stats.heap_bytes += contents.used as u64;
            }
            for (sum, spans) in sums.iter_mut().zip(&contents.spans) {
                sum.spans += spans.counts.spans;
                sum.blocks += spans.counts.blocks;
                sum.claimed += spans.counts.claimed;
            }
        }
        sums
    }

    /// By class, bytes of free blocks that are not resident. Counting them as they change would
    /// slow allocation down. Reading each span takes two milliseconds per GiB, one span at a time,
    /// so no thread waits for it.
    fn sum_of_holes(&self) -> [u64; CLASSES] {
        let (mut sums, page) = ([0; CLASSES], self.os.page_size());
        for unit in self.region.units_in(0..self.region.committed() / UNIT) {
            let entry = self.region.entry(unit);
            if let Some(class) = entry.class().filter(|_| entry.is_first(unit))
                && let Some(span) = self.copy_of_span(unit, class)
            {
                sums[class.index()] += span.hole_bytes(class, page) as u64;
            }
        }
        sums
    }

    /// As [`Engine::sum_of_holes`], as far as central free lists and heaps have counted.
    fn counted_holes(&self) -> [u64; CLASSES] {
        let mut sums = [0; CLASSES];
        for class in SizeClass::all() {
            let counts = self.centrals[class.index()].spans().lock().counts;
            sums[class.index()] = counts.holes as u64;
        }
        let heaps = self.heaps.lock();
        for heap in heaps.each(&self.region) {
            let contents = heap.contents().lock();
            for (sum, spans) in sums.iter_mut().zip(&contents.spans) {
                *sum += spans.counts.holes as u64;
            }
        }
        sums
    }

    /// Prints the statistics to standard error, in the format of those at exit. As text,
    /// which is the default, lines about resident memory follow.
    #[cold]
    pub fn print_stats(&self) {
        self.tell_stats(&mut |text| self.os.print(text));
    }

    /// Prints the statistics at exit, or writes them to the file that `EBB_STATS_TO` names.
    pub(crate) fn finish_stats(&self) {
        if !TELLING || !self.is_ready() || self.stats_at_exit() == StatsChoice::Off {
            return;
        }
        let path = self.setup().stats_to.of_process(ProcessName::of(&self.os));
        let print = || self.os.print_at_exit(&mut |out| self.tell_stats(out));
        if path.is_empty() {
            return print();
        }
        let is_written = path
            .c_str()
            .is_some_and(|path| self.os.write_file(path, &mut |out| self.tell_stats(out)));
        if !is_written {
            let path = path.shown();
            Line::print(&self.os, format_args!("cannot write statistics to {path} (EBB_STATS_TO)"));
            print();
        }
    }

    #[inline(never)]
    fn tell_stats(&self, out: Writer) {
        let mut out = Stream { out, prefix: "", buffer: [0; 512], length: 0 };
        let choice = self.stats_at_exit();
        if matches!(choice, StatsChoice::Text | StatsChoice::Off) {
            out.prefix = Line::START;
        }
        // Writing to a stream cannot fail.
        let _ = self.write_stats(choice, &mut out);
        if !out.prefix.is_empty() {
            let _ = self.write_lines(&mut out);
        }
    }

    /// The format in which statistics are printed at exit, if they are.
    pub(crate) fn stats_at_exit(&self) -> StatsChoice {
        match self.stats_at_exit.load(Ordering::Relaxed) {
            0 => self.setup().options.stats,
            1 => StatsChoice::Off,
            2 => StatsChoice::Text,
            3 => StatsChoice::Json,
            4 => StatsChoice::OpenMetrics,
            _ => StatsChoice::Prometheus,
        }
    }

    /// Not inlined: a thread with a small stack may end the program. Its stack cannot hold this
    /// frame and that of the ledger at once.
    #[inline(never)]
    fn write_stats(&self, choice: StatsChoice, out: &mut Stream) -> fmt::Result {
        let stats = self.stats();
        match choice {
            StatsChoice::Json => stats.write_json(out),
            StatsChoice::OpenMetrics => stats.write_openmetrics(out),
            StatsChoice::Prometheus => stats.write_prometheus(out),
            StatsChoice::Text | StatsChoice::Off => stats.write_text(out),
        }
    }
}

/// Standard error or a file with a small buffer, flushed after each line, so that other processes
/// do not write into the middle of a short line.
struct Stream<'a> {
    out: Writer<'a>,
    /// The start of every line.
    prefix: &'static str,
    buffer: [u8; 512],
    length: usize,
}

impl Stream<'_> {
    fn put(&mut self, byte: u8) {
        if self.length == self.buffer.len() {
            self.flush();
        }
        self.buffer[self.length] = byte;
        self.length += 1;
    }

    fn flush(&mut self) {
        (self.out)(&self.buffer[..self.length]);
        self.length = 0;
    }
}

impl Write for Stream<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if self.length == 0 {
                self.prefix.bytes().for_each(|byte| self.put(byte));
            }
            self.put(byte);
            if byte == b'\n' {
                self.flush();
            }
        }
        Ok(())
    }
}
