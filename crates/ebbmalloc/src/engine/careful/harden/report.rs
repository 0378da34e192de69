//! What hardening says: one line, and the process ends.

use crate::engine::Engine;
use crate::platform::os::Os;
use crate::safety::seal::Broken;

/// What a program did wrong with a block.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// Freed, or resized, when it was freed already.
    Freed,
    /// Freed, and never handed out.
    Foreign,
    /// Freed with the first size, and it has the second.
    Size(usize, usize),
    /// Written behind its end.
    Behind(Broken),
    /// Written before its start, or behind the end of the block before it.
    Before,
    /// Written after it was freed, at this offset.
    Written(usize),
}

impl From<Broken> for Fault {
    fn from(broken: Broken) -> Self {
        Self::Behind(broken)
    }
}

/// Something that is to be reported once no lock is held.
pub(crate) struct Mistake {
    pub(super) block: *mut u8,
    pub(super) fault: Fault,
}

impl<O: Os> Engine<O> {
    /// Stops the program if there was a mistake.
    pub(crate) fn abort_on_mistake<T>(&self, result: Result<T, Mistake>) -> T {
        result.unwrap_or_else(|mistake| self.report_mistake(mistake, "a look at freed blocks"))
    }

    /// Says what was wrong with a block and ends the process.
    #[cold]
    #[inline(never)]
    pub(super) fn report_mistake(&self, mistake: Mistake, operation: &str) -> ! {
        let Mistake { block, fault } = mistake;
        let address = block.addr();
        match fault {
            Fault::Freed => self.fault("double free", block, operation),
            Fault::Foreign => self.fault("invalid free", block, operation),
            Fault::Size(given, size) => self.say_wrong_size(block, given, size, operation),
            Fault::Behind(Broken::Byte(at, size)) => self.say(format_args!(
                "overflow: {address:#x} has {size} bytes, and byte {at} was written; seen by {operation}"
            )),
            Fault::Behind(Broken::Size) => self.say(format_args!(
                "overflow: {address:#x} was written far behind its end; seen by {operation}"
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
