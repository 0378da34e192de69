//! Reports a mistake that harden mode found, in one line, and ends the process.

use crate::engine::Engine;
use crate::platform::os::Os;
use crate::safety::seal::Broken;

/// A mistake of the program with a block.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// A free or resize of a block that was freed before.
    Freed,
    /// A free at an address of a span at which no block begins.
    Invalid,
    /// A sized free: the size given, and the block's size.
    Size(usize, usize),
    /// A write past the block's end.
    Behind(Broken),
    /// A write before its start, or past the end of the block before it.
    Before,
    /// A write after the block was freed, at this offset.
    Written(usize),
}

impl From<Broken> for Fault {
    fn from(broken: Broken) -> Self {
        Self::Behind(broken)
    }
}

/// A fault of a block, to be reported once the caller holds no lock.
pub(crate) struct Mistake {
    pub(super) block: *mut u8,
    pub(super) fault: Fault,
}

impl<O: Os> Engine<O> {
    /// Ends the process if there was a mistake.
    pub(crate) fn abort_on_mistake<T>(&self, result: Result<T, Mistake>) -> T {
        result.unwrap_or_else(|mistake| self.report_mistake(mistake, "a check of freed blocks"))
    }

    /// Prints the mistake and ends the process.
    #[cold]
    #[inline(never)]
    pub(super) fn report_mistake(&self, mistake: Mistake, operation: &str) -> ! {
        let Mistake { block, fault } = mistake;
        let address = block.addr();
        match fault {
            Fault::Freed => self.fault("double free", block, operation),
            Fault::Invalid => self.fault("invalid free", block, operation),
            Fault::Size(given, size) => self.say_wrong_size(block, given, size, operation),
            Fault::Behind(Broken::Byte(at, size)) => self.say(format_args!(
                "overflow: {address:#x} has {size} bytes, and byte {at} was written; \
                 seen by {operation}"
            )),
            Fault::Behind(Broken::Size) => self.say(format_args!(
                "overflow: {address:#x} was written past its end, over its seal; \
                 seen by {operation}"
            )),
            Fault::Before => self.say(format_args!(
                "overflow: bytes before {address:#x} were written; seen by {operation}"
            )),
            Fault::Written(at) => self.say(format_args!(
                "write after free: byte {at} of {address:#x} was written; seen by {operation}"
            )),
        }
        self.os.abort()
    }
}
