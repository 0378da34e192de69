//! Reports a misused address, and aborts.

pub(crate) mod print;

use crate::backend::region::UnitIndex;
use crate::backend::run::Run;
use crate::engine::Engine;
use crate::engine::lookup::LargeBlock;
use crate::platform::os::Os;
use crate::safety::check_table::{BlockRecord, Event};
use crate::safety::tuning::STACK_CALLS_MAX;
use crate::size_class::UNIT;

impl<O: Os> Engine<O> {
    /// The large block at this address. If none begins there, the program stops.
    #[cold]
    #[inline(never)]
    pub(crate) fn large_at(&self, block: *mut u8, operation: &str) -> LargeBlock {
        match self.large_block(block) {
            Some(found) => found,
            None => self.fault(self.wrong_address(block), block, operation),
        }
    }

    /// Names the fault of an address at which no block begins.
    fn wrong_address(&self, block: *mut u8) -> &'static str {
        let region = &self.region;
        let Some(offset) = region.committed_offset(block) else {
            return "invalid free";
        };
        let unit = (offset / UNIT) as UnitIndex;
        let (entry, page) = (region.entry(unit as usize), self.os.page_size());
        if (entry.is_large_freed() || entry.is_cached()) && offset % UNIT == entry.begin(page) {
            return "double free";
        }
        // Perhaps inside a block: find the nearest one that begins below.
        let mut below = (1..=unit).rev().map(|unit| (unit, region.entry(unit as usize)));
        let nearest = below.find(|&(unit, entry)| {
            let begin = unit as usize * UNIT + entry.begin(page);
            entry.class().is_some() || entry.is_large() && begin < offset
        });
        match nearest {
            Some((first, entry)) if entry.is_large() => {
                // SAFETY: the unit is committed. The process is about to end, so a torn read of the
                // record only makes the message wrong.
                let bytes = unsafe {
                    match entry.is_medium() {
                        true => Run::medium_asked_at(region.run(first)),
                        false => (*region.run(first)).units as usize * UNIT,
                    }
                };
                match first as usize * UNIT + entry.begin(page) + bytes > offset {
                    true => "interior pointer",
                    false => "invalid free",
                }
            }
            Some((at, _)) if at == unit => "interior pointer",
            _ => "invalid free",
        }
    }

    /// Prints the fault and ends the process. Check mode adds the stacks that it has.
    #[cold]
    #[inline(never)]
    pub(crate) fn fault(&self, fault: &str, block: *mut u8, operation: &str) -> ! {
        self.say_fault(fault, block, operation);
        if self.checking() {
            self.explain(block);
        }
        self.os.abort()
    }

    /// Prints the calling stack, and check mode's record of the block that this address lies in.
    #[cold]
    pub(crate) fn explain(&self, address: *mut u8) {
        self.print_own_calls();
        let table = self.check_table.lock();
        let found = table.find(address).map(|(_, record)| record).or_else(|| table.around(address));
        drop(table);
        if let Some(record) = found {
            let offset = address.addr() - record.block.addr();
            self.say(format_args!(
                "  {offset} bytes into the block at {:#x}:",
                record.block.addr()
            ));
            self.describe(&record);
        }
    }

    /// Prints check mode's record of a block: its size, and the stacks that allocated and freed it.
    #[inline(never)]
    pub(crate) fn describe(&self, record: &BlockRecord) {
        let BlockRecord { size, number, allocated, freed, .. } = *record;
        let class = self.heap_block(record.block).map_or(0, |found| found.usable);
        let thread = allocated.thread;
        match class {
            0 => self
                .say(format_args!("  block {number}, {size} bytes, allocated by thread {thread}:")),
            class => self.say(format_args!(
                "  block {number}, {size} bytes, of size class {class}, allocated by thread \
                 {thread}:"
            )),
        }
        self.print_event(allocated);
        if !record.is_live() {
            self.say(format_args!("  first freed by thread {}:", freed.thread));
            self.print_event(freed);
        }
    }

    fn print_event(&self, event: Event) {
        let mut calls = [0; STACK_CALLS_MAX];
        let depth = self.check_table.lock().calls(event.stack, &mut calls);
        self.print_calls(&calls[..depth]);
    }
}
