//! Refuses requests for memory: counts them, may tell the first, and calls the program's function.
//! Calls another one when a share of the limit is in use.

use core::fmt::Arguments;
use core::mem::transmute;
use core::num::NonZeroUsize;

use crate::backend::region::Region;
use crate::engine::Engine;
use crate::figures::numbers::Bytes;
use crate::options::{OnPressure, OnRefusal, TELLING};
use crate::platform::message::Line;
use crate::platform::os::Os;
use crate::platform::sync::Ordering;

impl<O: Os> Engine<O> {
    /// Calls this function when a request is refused, in the thread that makes it, with no lock
    /// held. The function may allocate and free. Refusals meanwhile do not call it.
    pub fn on_refusal(&self, call: Option<OnRefusal>) {
        let call = call.map_or(0, |call| call as usize);
        self.callbacks.on_refusal.store(call, Ordering::Relaxed);
    }

    /// Calls this function when `percent` percent of the limit are held, in a thread that
    /// allocates, with no lock held; and again after a sixteenth less was held in between. Without
    /// a limit it is that of the control group, or the machine's memory.
    pub fn on_pressure(&self, percent: u8, call: Option<OnPressure>) {
        self.callbacks.on_pressure.store(0, Ordering::Relaxed);
        self.callbacks.percent.store(percent, Ordering::Relaxed);
        self.callbacks.is_pressed.store(false, Ordering::Relaxed);
        let call = call.map_or(0, |call| call as usize);
        self.callbacks.on_pressure.store(call, Ordering::Release);
    }

    /// Calls the function of [`Engine::on_pressure`] if it is due. Called after memory was
    /// allocated from spans or the page heap, with no lock held.
    #[inline]
    pub(crate) fn tell_pressure_if_due(&self) {
        let call = self.callbacks.on_pressure.load(Ordering::Acquire);
        if call != 0 {
            self.tell_pressure(call);
        }
    }

    #[cold]
    #[inline(never)]
    fn tell_pressure(&self, call: usize) {
        let (held_units, limit_units) = self.held_and_limit();
        let percent = self.callbacks.percent.load(Ordering::Relaxed) as u128;
        let due_units = (limit_units as u128 * percent / 100) as usize;
        if limit_units == 0 || held_units < due_units {
            if held_units < due_units - due_units / 16 {
                self.callbacks.is_pressed.store(false, Ordering::Relaxed);
            }
            return;
        }
        if self.callbacks.is_pressed.swap(true, Ordering::Relaxed) {
            return;
        }
        // SAFETY: only `on_pressure` stores this word, from a function of this type.
        let call = unsafe { transmute::<usize, OnPressure>(call) };
        call(held_units * Region::UNIT_COST, limit_units * Region::UNIT_COST);
    }

    /// The units that are held, and that may be: by the limit, or by the control group or machine.
    pub(crate) fn held_and_limit(&self) -> (usize, usize) {
        let pages = self.pages.lock();
        let memory_units = pages.retention.memory_bytes / Region::UNIT_COST;
        let limit_units = pages.limit.map_or(memory_units, NonZeroUsize::get);
        (pages.counts.held(), limit_units)
    }

    /// Refuses a request for `size` bytes, because memory is short or the limit is reached. The
    /// caller holds no lock.
    #[cold]
    #[inline(never)]
    pub(crate) fn refuse(&self, size: usize) {
        self.tell_refusal(size);
        self.refuse_silently();
        let call = self.callbacks.on_refusal.load(Ordering::Relaxed);
        // Where the function's own request is refused, it is not called again.
        if call != 0 && !self.callbacks.is_refusing.swap(true, Ordering::Relaxed) {
            // SAFETY: only `on_refusal` stores this word, from a function of this type.
            unsafe { transmute::<usize, OnRefusal>(call)(size) };
            self.callbacks.is_refusing.store(false, Ordering::Relaxed);
            // The function may have changed `errno`.
            self.os.out_of_memory();
        }
    }

    /// Tells the first refusal on standard error, where a limit, `EBB_STATS` or `EBB_EXPLAIN` is
    /// in force. Other programs may probe for memory, forbid write(2), or use descriptor 2 for a
    /// file. A size beyond all memory is not told: programs ask for it on purpose.
    fn tell_refusal(&self, size: usize) {
        if !self.is_ready() {
            return;
        }
        let (limit_bytes, is_at_limit, memory_bytes) = {
            let pages = self.pages.lock();
            let limit_units = pages.limit.map_or(0, NonZeroUsize::get);
            (limit_units * Region::UNIT_COST, pages.is_at_limit, pages.retention.memory_bytes)
        };
        let is_asked = limit_bytes > 0 || TELLING && self.setup().options.is_telling();
        let space_bytes = self.os.address_space();
        let is_possible = size <= if memory_bytes > 0 { memory_bytes } else { space_bytes };
        if !is_asked || !is_possible || !self.counters.take_first_told() {
            return;
        }
        let tell = |why: Arguments| {
            let rest = "later ones are only counted (`refusals` in the statistics)";
            Line::print(&self.os, format_args!("refused {size} bytes: {why}; {rest}"));
        };
        if is_at_limit {
            tell(format_args!("EBB_LIMIT allows {}", Bytes(limit_bytes as u64)));
        } else {
            tell(format_args!("memory is short"));
        }
    }

    /// Refuses a request that the program has forbidden itself, by the limit of a heap.
    #[cold]
    pub(crate) fn refuse_silently(&self) {
        self.counters.count_refusal();
        self.os.out_of_memory();
    }
}
