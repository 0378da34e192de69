//! Switches the heap profile on and off: for the program, for `EBB_PROFILE`, and for another
//! process (`telemetry/remote_profile.rs`). At any time and in all modes. Other requests of another
//! process, to change an option, come the same way.

use crate::backend::page_heap::Granted;
use crate::backend::units::Units;
use crate::engine::Engine;
use crate::frontend::Mode;
use crate::options::PROFILING;
use crate::platform::os::Os;
use crate::platform::sync::Ordering;
use crate::telemetry::profile::gate::{HotPaths, REQUEST};
use crate::telemetry::remote_setting::SETTING_BYTES;

/// The largest mean: distances are nearly always below 32 times as many bytes, and fit in 31 bits.
const MEAN_BYTES_MAX: u64 = 64 << 20;

impl<O: Os> Engine<O> {
    /// Switches the heap profile on, in an engine that is set up: [`Engine::start_profile`].
    pub(crate) fn switch_profile_on(&self, mean_bytes: u64) -> bool {
        if !PROFILING || mean_bytes == 0 {
            return false;
        }
        let _switch = self.profile.switch.lock();
        self.begin_session(mean_bytes)
    }

    /// Switches the heap profile off. It can still be read. Blocks freed later are subtracted.
    pub fn stop_profile(&self) {
        if PROFILING && self.is_ready() {
            let _switch = self.profile.switch.lock();
            self.end_session();
        }
    }

    /// Follows a request of another process, if there is one.
    pub(crate) fn follow_request_if_any(&self) {
        if self.profile.gate() == REQUEST {
            self.follow_request();
        }
    }

    /// Follows a request of another process, and stores all words of the switch anew: that process
    /// may have stored into them.
    #[cold]
    #[inline(never)]
    pub(crate) fn follow_request(&self) {
        let shown = &self.profile.shown;
        let _switch = self.profile.switch.lock();
        // The gate was read before, with `Acquire`; so these loads see what was stored before it.
        let wanted = shown.wanted.load(Ordering::Relaxed);
        if wanted != shown.followed.load(Ordering::Relaxed) {
            let mut text = [0; SETTING_BYTES];
            match (shown.setting.take(&mut text), shown.wanted_mean_bytes.load(Ordering::Relaxed)) {
                (0, 0) => self.end_session(),
                (0, mean_bytes) => {
                    self.begin_session(mean_bytes);
                }
                (length, _) => {
                    let error = self.change_by_text(&text[..length]).err();
                    let error = error.map_or(0, |error| error as u32);
                    shown.setting_error.store(error, Ordering::Relaxed);
                }
            }
            shown.followed.store(wanted, Ordering::Release);
        }
        self.restore_switch();
    }

    /// Opens the hot path of allocations again, if another process closed it and its request was
    /// followed already.
    #[cold]
    pub(crate) fn restore_switch(&self) {
        let table = self.profile.table.lock();
        self.profile.shown.gate.restore(&table.session, |paths| self.set_hot_paths(paths));
    }

    /// Whether the hot path of allocations is closed and should be open.
    #[inline]
    pub(crate) fn is_closed_in_vain(&self) -> bool {
        PROFILING && self.profile.gate() == 0 && self.may_be_hot()
    }

    /// Begins a session of the profile. The caller holds the lock of the switch.
    fn begin_session(&self, mean_bytes: u64) -> bool {
        let mean_bytes = mean_bytes.min(MEAN_BYTES_MAX);
        if !self.profile.set_up_filter(&self.os) || !self.set_up_profile_heap() {
            return false;
        }
        let shown = &self.profile.shown;
        let mut table = self.profile.table.lock();
        if table.session.is_on() && shown.mean_bytes.load(Ordering::Relaxed) == mean_bytes {
            return true;
        }
        if !table.begin(&self.os, shown, mean_bytes) {
            return false;
        }
        shown.is_on.store(1, Ordering::Relaxed);
        let is_fast = self.may_be_hot();
        shown.gate.open(&mut table.session, is_fast, |paths| self.set_hot_paths(paths));
        true
    }

    /// Ends the session of the profile. The caller holds the lock of the switch.
    fn end_session(&self) {
        let shown = &self.profile.shown;
        let mut table = self.profile.table.lock();
        shown.is_on.store(0, Ordering::Relaxed);
        shown.gate.close(&mut table.session, |paths| self.set_hot_paths(paths));
    }

    /// Makes the heap of sampled small blocks. Check and harden mode need none: there, all blocks
    /// are blocks of heaps. False if memory is short.
    fn set_up_profile_heap(&self) -> bool {
        if self.profile.heap() != 0 || self.all_in_heaps() {
            return true;
        }
        let granted = self.pages().alloc(Units::ONE, Units::ONE);
        let Some(Granted { first, .. }) = granted else { return false };
        // Under the lock of the list, so that statistics know it when they find it.
        let mut heaps = self.heaps.lock();
        heaps.add(&self.region, first, usize::MAX);
        self.profile.set_heap(first);
        true
    }

    /// Whether restartable sequences may serve allocations at once, but for a profile.
    fn may_be_hot(&self) -> bool {
        self.setup().mode == Mode::PerCpu && !self.counting() && !self.all_in_heaps()
    }

    /// Opens and closes the hot paths. The caller holds the lock of the table.
    pub(crate) fn set_hot_paths(&self, (alloc, sized): HotPaths) {
        let area = if self.may_be_hot() { self.setup().percpu_base.area } else { 0 };
        self.store_hot_areas(area, (alloc, sized));
    }

    /// Stores the offset of the thread's rseq area, 0 for none, for the hot paths that may be open.
    pub(crate) fn store_hot_areas(&self, area: isize, (alloc, sized): HotPaths) {
        let sized_area = if sized && !self.sampling() { area } else { 0 };
        self.hot_sized_area.store(sized_area, Ordering::Release);
        self.hot_area.store(if alloc { area } else { 0 }, Ordering::Release);
    }
}
