//! Reports mistakes with sampled blocks, in the words of check mode.

use crate::engine::Engine;
use crate::engine::tuning::FAULT_REPORT_WAIT_MS;
use crate::platform::os::Os;
use crate::safety::guarded_slots::{SlotFault, SlotRecord, SlotState, Trace};

impl<O: Os> Engine<O> {
    /// Prints the fault of an address that the program passed in, and ends the process.
    #[cold]
    #[inline(never)]
    pub(super) fn report_misuse(
        &self,
        fault: SlotFault,
        block: *mut u8,
        record: Option<SlotRecord>,
        operation: &str,
    ) -> ! {
        let (address, size) = (block.addr(), record.map_or(0, |record| record.size));
        match fault {
            SlotFault::Unknown => self.say_fault("invalid free", block, operation),
            SlotFault::Interior => self.say_fault("interior pointer", block, operation),
            SlotFault::Twice => self.say_fault("double free", block, operation),
            SlotFault::Size(given) => self.say_wrong_size(block, given, size, operation),
            SlotFault::Written(at, found) => self.say(format_args!(
                "{}: {address:#x} has {size} bytes, and byte {at} was written ({found:#04x}); \
                 seen by {operation}",
                side(at)
            )),
        }
        self.print_own_calls();
        if let Some(record) = record {
            self.describe_sampled(&record);
        }
        self.os.abort()
    }

    /// Prints which sampled block a faulting access was meant for. The handler of SIGSEGV calls it
    /// with the address and the instruction. Prints nothing for an address outside the slots.
    #[cold]
    pub fn explain_fault(&self, address: usize, instruction: usize) {
        if !self.samples.contains(address) {
            return;
        }
        let mut trace = Trace::take(&self.os);
        let found = (0..FAULT_REPORT_WAIT_MS).find_map(|_| match self.samples.slots.try_lock() {
            Some(slots) => Some(slots.nearest(address)),
            None => {
                self.os.sleep_ms(1);
                None
            }
        });
        let Some(record) = found.flatten() else {
            self.say(format_args!(
                "bad access: {address:#x}, in or next to a slot without a known sampled block"
            ));
            return;
        };
        let (block, size) = (record.block, record.size);
        let at = address.wrapping_sub(block) as isize;
        match record.state {
            SlotState::Freed => self.say(format_args!(
                "use after free: {block:#x} had {size} bytes, and byte {at} was accessed"
            )),
            _ => self.say(format_args!(
                "{}: {block:#x} has {size} bytes, and byte {at} was accessed",
                side(at)
            )),
        }
        self.say(format_args!("  here, in thread {}:", trace.thread));
        self.print_calls(trace.calls_from(instruction));
        self.describe_sampled(&record);
    }

    fn describe_sampled(&self, record: &SlotRecord) {
        let SlotRecord { size, allocated, freed, state, .. } = record;
        let thread = allocated.thread;
        self.say(format_args!("  sampled block of {size} bytes, allocated by thread {thread}:"));
        self.print_calls(allocated.calls());
        if *state == SlotState::Freed {
            self.say(format_args!("  first freed by thread {}:", freed.thread));
            self.print_calls(freed.calls());
        }
    }
}

/// The mistake that an access outside a block is, by its offset from the block's start.
fn side(at: isize) -> &'static str {
    if at < 0 { "underflow" } else { "overflow" }
}
