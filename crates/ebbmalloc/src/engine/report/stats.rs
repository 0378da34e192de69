//! Gathers statistics and prints them. `figures/stats` declares them, and has their formats.

use core::fmt::{self, Write};

use crate::backend::huge_pages::HUGE_BYTES;
use crate::backend::region::Region;
use crate::central::CentralCounts;
use crate::engine::Engine;
use crate::engine::report::room::with_room;
use crate::figures::choice::Choice;
use crate::figures::process::ProcessName;
use crate::figures::stats::{ClassStats, Stats};
use crate::options::{StatsChoice, TELLING};
use crate::platform::message::Line;
use crate::platform::os::{Os, Writer};
use crate::platform::sync::Ordering;
use crate::size_class::{SizeClass, UNIT};
use crate::telemetry::ledger::rounding_most;

/// How much a snapshot looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// No span, so it takes microseconds. With OS pages above 4 KiB, holes are upper bounds.
    AtOnce,
    /// All of the engine.
    Heap,
    /// Also the kernel's figures for the process, and its version.
    Whole,
}

impl<O: Os> Engine<O> {
    /// A snapshot of all statistics. Its parts are read one after the other: while other threads
    /// work, they may disagree by a few batches. Does not allocate.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::EMPTY;
        self.gather(Detail::Whole, &mut stats);
        stats
    }

    /// Passes a snapshot to `work`, and returns what that returns. Needs little of the thread's
    /// stack.
    pub fn with_stats<R>(&self, detail: Detail, work: impl FnOnce(&Stats) -> R) -> R {
        with_room(&self.os, &Stats::EMPTY, |stats| {
            self.gather(detail, stats);
            work(stats)
        })
    }

    /// Gathers statistics into `stats`, which are empty.
    #[inline(never)]
    fn gather(&self, detail: Detail, stats: &mut Stats) {
        // The engine's set-up may not be read while another thread performs it.
        if !self.ready() {
            return;
        }
        let counters = self.counters.read();
        let setup = self.setup();
        stats.choice = setup.choice.unwrap_or(Choice::UNSET);

        for class in SizeClass::all() {
            let counts = self.centrals[class.index()].spans().lock().counts;
            let cached = self.cached_blocks(class).min(counts.claimed);
            let row = &mut stats.classes[class.index()];
            row.add_spans(&counts);
            (row.block_bytes, row.cached) = (class.size() as u64, cached as u64);
            row.live -= row.cached;
            (row.refills, row.flushes) = (counts.refills as u64, counts.flushes as u64);
            stats.dug_bytes += counts.purged as u64;
        }
        self.add_heaps(stats);
        if detail != Detail::AtOnce {
            self.find_holes(stats);
        }
        for class in SizeClass::all() {
            let (row, size) = (&mut stats.classes[class.index()], class.size() as u64);
            row.hole_bytes = row.hole_bytes.min(row.free * size);
            stats.live_bytes += row.live * size;
            stats.cached_bytes += row.cached * size;
            stats.pinned_bytes += row.free * size - row.hole_bytes;
            stats.hole_bytes += row.hole_bytes;
            stats.rounding_bytes += rounding_most(class, row.live);
            stats.spans += row.spans;
            stats.refills += row.refills;
            stats.flushes += row.flushes;
        }
        stats.cached_bytes += self.near_bytes() as u64;
        stats.large_blocks = counters.large_blocks as u64;
        stats.large_bytes = counters.large_bytes as u64;
        let in_units = stats.heaps > 0 || self.all_in_heaps();
        let rounding = if in_units { UNIT } else { self.os.page_size() };
        stats.rounding_bytes += (stats.large_blocks * rounding as u64).min(stats.large_bytes);
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

        let (counts, limit, memory_bytes, wanted_units, huge) = {
            let mut pages = self.pages();
            let counts = pages.counts;
            let wanted_units = pages.retention.wanted_units(&self.os, &counts);
            let retention = &pages.retention;
            (pages.counts, pages.limit, retention.memory_bytes, wanted_units, pages.huge.totals)
        };
        stats.huge_bytes = (counts.huge_pages * HUGE_BYTES) as u64;
        stats.huge_pages = huge.pages as u64;
        stats.huge_refusals = huge.refusals as u64;
        stats.huge_us = huge.ns / 1000;
        stats.memory_bytes = memory_bytes as u64;
        stats.wanted_bytes = (wanted_units * UNIT) as u64;
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
        if detail == Detail::Whole {
            self.add_process(stats);
        }
    }

    /// Adds the kernel's figures for the process, and its version.
    fn add_process(&self, stats: &mut Stats) {
        stats.choice.kernel = self.os.kernel();
        stats.process = ProcessName::of(&self.os);
        let usage = self.os.usage();
        (stats.elapsed_us, stats.user_us) = (usage.elapsed_us, usage.user_us);
        stats.system_us = usage.system_us;
        (stats.minor_faults, stats.major_faults) = (usage.minor_faults, usage.major_faults);
        (stats.resident_bytes, stats.peak_resident_bytes) = (usage.resident, usage.peak_resident);
    }

    /// Adds heaps, the bytes of their blocks, and their spans.
    fn add_heaps(&self, stats: &mut Stats) {
        let heaps = self.heaps.lock();
        for heap in heaps.each(&self.region) {
            let contents = heap.contents().lock();
            if !self.profile.is_heap(heap.unit()) {
                stats.heaps += 1;
                stats.heap_bytes += contents.used as u64;
            }
            for (row, spans) in stats.classes.iter_mut().zip(&contents.spans) {
                row.add_spans(&spans.counts);
            }
        }
    }

    /// Finds the bytes of free blocks that are not resident, which are counted only roughly.
    /// Counting them as they change would slow allocation down. Reading each span takes two
    /// milliseconds per GiB, one span at a time, so no thread waits for it.
    fn find_holes(&self, stats: &mut Stats) {
        stats.classes.iter_mut().for_each(|row| row.hole_bytes = 0);
        for unit in self.region.units_in(0..self.region.committed() / UNIT) {
            let entry = self.region.entry(unit);
            if let Some(class) = entry.class().filter(|_| entry.is_first(unit))
                && let Some(span) = self.copy_of_span(unit, class)
            {
                let bytes = span.hole_bytes(class, self.os.page_size());
                stats.classes[class.index()].hole_bytes += bytes as u64;
            }
        }
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
        if path.is_empty() {
            return self.print_stats();
        }
        let is_written = path
            .c_str()
            .is_some_and(|path| self.os.write_file(path, &mut |out| self.tell_stats(out)));
        if !is_written {
            let path = path.shown();
            Line::print(&self.os, format_args!("cannot write statistics to {path} (EBB_STATS_TO)"));
            self.print_stats();
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

    fn write_stats(&self, choice: StatsChoice, out: &mut Stream) -> fmt::Result {
        self.with_stats(Detail::Whole, |stats| match choice {
            StatsChoice::Json => stats.write_json(out),
            StatsChoice::OpenMetrics => stats.write_openmetrics(out),
            StatsChoice::Prometheus => stats.write_prometheus(out),
            StatsChoice::Text | StatsChoice::Off => stats.write_text(out),
        })
    }
}

impl ClassStats {
    /// Adds the spans of one central free list or heap.
    fn add_spans(&mut self, counts: &CentralCounts) {
        self.spans += counts.spans as u64;
        self.live += counts.claimed as u64;
        self.free += counts.free() as u64;
        self.hole_bytes += counts.holes as u64;
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
