//! What check mode says: one line as everywhere, then who allocated the block and who freed it, and at exit which
//! blocks are still held.

use core::ptr;

use super::Fault;
use crate::safety::check_table::{DEPTH, Event, Record};
use crate::engine::Engine;
use crate::platform::options::CheckChoice;
use crate::platform::os::Os;
use crate::size_class::UNIT;

/// So many stacks are listed at exit.
const LISTED: usize = 10;

impl<O: Os> Engine<O> {
    /// Says what was wrong with a block, and what is known of it, and ends the process.
    #[cold]
    #[inline(never)]
    pub(super) fn report(
        &self,
        fault: Fault,
        block: *mut u8,
        record: Option<Record>,
        operation: &str,
    ) -> ! {
        let (address, size) = (block.addr(), record.map_or(0, |record| record.size));
        match fault {
            Fault::Freed => self.say_fault("double free", block, operation),
            Fault::Size(given) => self.say_wrong_size(block, given, size, operation),
            Fault::Overflow(at, found) => self.say(format_args!(
                "overflow: {address:#x} has {size} bytes, and byte {at} was written ({found:#04x}); seen by {operation}"
            )),
            Fault::Written(at, found) => self.say(format_args!(
                "write after free: {address:#x} had {size} bytes, and byte {at} was written ({found:#04x}); seen by {operation}"
            )),
        }
        self.print_own_calls();
        if let Some(record) = record {
            self.describe(&record);
        }
        self.os.abort()
    }

    /// Says what is known of an address that is no block's.
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

    #[inline(never)]
    fn describe(&self, record: &Record) {
        let Record { size, number, allocated, freed, .. } = *record;
        let class = self.heap_block(record.block).map_or(0, |found| found.usable);
        let thread = allocated.thread;
        match class {
            0 => self.say(format_args!("  block {number}, {size} bytes, allocated by thread {thread}:")),
            class => self.say(format_args!(
                "  block {number}, {size} bytes, of size class {class}, allocated by thread {thread}:"
            )),
        }
        self.print_event(allocated);
        if !record.is_live() {
            self.say(format_args!("  first freed by thread {}:", freed.thread));
            self.print_event(freed);
        }
    }

    fn print_event(&self, event: Event) {
        let mut calls = [0; DEPTH];
        let known = self.check_table.lock().calls(event.stack, &mut calls);
        self.print_calls(&calls[..known]);
    }

    /// Where the small block begins that an address lies in; any other address is that of a large one, or of none.
    fn begin_of(&self, address: usize) -> *mut u8 {
        let pointer = ptr::without_provenance_mut(address);
        let Some(offset) = self.region.committed_offset(pointer) else {
            return ptr::null_mut();
        };
        let entry = self.region.entry(offset / UNIT);
        let Some(class) = entry.class() else {
            return pointer;
        };
        let within = entry.within_span(offset);
        pointer.wrapping_sub(within - class.block_at(within) * class.size())
    }

    /// What check mode does when the process exits.
    pub(crate) fn finish_check(&self) {
        self.verify_all("exit");
        if self.setup().options.check == CheckChoice::NoLeaks {
            return;
        }
        // Under no lock of ours, as it takes the loader's.
        let library = self.os.c_library();
        let mut table = self.check_table.lock();
        table.reach(&library, &|address| self.begin_of(address));
        let all = table.count_held(&library);
        drop(table);
        if all.blocks == 0 {
            return;
        }
        let (bytes, blocks) = (all.bytes, all.blocks);
        self.say(format_args!("still held at exit: {bytes} bytes in {blocks} blocks"));
        let mut rest = all;
        for _ in 0..LISTED {
            let mut table = self.check_table.lock();
            let Some((stack, held)) = table.most_held() else {
                return;
            };
            let mut calls = [0; DEPTH];
            let known = table.calls(stack, &mut calls);
            drop(table);
            self.say(format_args!(
                "  {} bytes in {} blocks, allocated here:",
                held.bytes, held.blocks
            ));
            self.print_calls(&calls[..known]);
            rest.bytes -= held.bytes;
            rest.blocks -= held.blocks;
        }
        if rest.blocks > 0 {
            self.say(format_args!(
                "  and {} bytes in {} blocks elsewhere",
                rest.bytes, rest.blocks
            ));
        }
    }
}
