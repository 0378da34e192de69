//! Writes the heap profile by itself: at the exit of the process, at peaks, near a limit, or on a
//! signal (`EBB_PROFILE_AT`), to files in a directory (`EBB_PROFILE_TO`).

use core::fmt::{self, Write};
use core::num::NonZeroUsize;

use crate::engine::Engine;
use crate::engine::tuning::{PROFILE_LIMIT_LOOK_MS, PROFILE_PEAK_DIVISOR};
use crate::figures::process::ProcessName;
use crate::options::{PROFILING, PathChoice, ProfileAtChoice, ProfileChoice};
use crate::platform::message::Line;
use crate::platform::os::Os;
use crate::platform::sync::Ordering;
use crate::telemetry::tuning::PROFILE_MEAN_BYTES;

impl<O: Os> Engine<O> {
    /// Begins the profile that `EBB_PROFILE` asks for: the program begins, and stacks can be read.
    pub fn begin_profile(&self) {
        self.profile.has_begun.store(true, Ordering::Relaxed);
        self.begin_profile_if_begun();
    }

    /// Does the work of [`Engine::begin_profile`], once the engine is set up and the program has
    /// begun.
    pub(crate) fn begin_profile_if_begun(&self) {
        if !PROFILING || !self.is_ready() || !self.profile.has_begun.load(Ordering::Relaxed) {
            return;
        }
        let mean_bytes = match self.setup().options.profile {
            ProfileChoice::Off if self.profile_at() == ProfileAtChoice::Never => return,
            ProfileChoice::Off => {
                let text = format_args!(
                    "EBB_PROFILE_AT and EBB_PROFILE_TO are ignored: they need EBB_PROFILE=1"
                );
                return Line::print(&self.os, text);
            }
            ProfileChoice::Usual => PROFILE_MEAN_BYTES,
            ProfileChoice::Mean(mean_bytes) => mean_bytes.get() as u64,
        };
        if !self.switch_profile_on(mean_bytes) {
            let text = format_args!("EBB_PROFILE is ignored: cannot map its tables");
            return Line::print(&self.os, text);
        }
        if let (ProfileAtChoice::Signal(signal), Some(hooks)) = (self.profile_at(), self.os.hooks())
        {
            self.os.watch_signal(signal as i32, hooks.at_profile_signal);
        }
    }

    /// When the profile is to be written.
    fn profile_at(&self) -> ProfileAtChoice {
        let options = &self.setup().options;
        match options.profile_at {
            ProfileAtChoice::Never if options.profile_to != PathChoice::Unset => {
                ProfileAtChoice::Exit
            }
            at => at,
        }
    }

    /// Whether the profile is to be written when the process exits.
    pub(crate) fn profiles_exit(&self) -> bool {
        PROFILING
            && self.setup().options.profile != ProfileChoice::Off
            && self.profile_at() == ProfileAtChoice::Exit
    }

    /// Writes the profile on a signal, or at the next allocation of any thread: this runs in a
    /// handler, which may have interrupted the engine.
    pub fn ask_for_profile(&self) {
        if !PROFILING {
            return;
        }
        self.profile.is_file_wanted.store(true, Ordering::Relaxed);
        self.hot_area.store(0, Ordering::Relaxed);
        self.profile.shown.gate.remind();
    }

    /// Writes the profile if a signal asked for it.
    pub(crate) fn write_profile_if_asked(&self) {
        if self.profile.is_file_wanted.swap(false, Ordering::Relaxed) {
            let nth = self.profile.files.fetch_add(1, Ordering::Relaxed) + 1;
            self.write_profile_of(format_args!("{nth}"));
        }
    }

    /// Writes the profile if the bytes that the program holds have reached a new peak, or memory a
    /// limit. Called after each sample, with no lock held.
    #[inline]
    pub(crate) fn write_profile_if_due(&self, live_bytes: u64) {
        let at = self.profile_at();
        if matches!(at, ProfileAtChoice::Signal(_)) {
            // The request may have been overwritten meanwhile.
            self.write_profile_if_asked();
        }
        if matches!(at, ProfileAtChoice::Peak | ProfileAtChoice::Limit(_)) {
            self.write_profile_if_reached(at, live_bytes);
        }
    }

    #[cold]
    #[inline(never)]
    fn write_profile_if_reached(&self, at: ProfileAtChoice, live_bytes: u64) {
        let written = &self.profile.written_bytes;
        let before = written.load(Ordering::Relaxed);
        let is_due = match at {
            ProfileAtChoice::Limit(percent) => {
                before == 0 && (self.is_near_limit(percent) || self.is_memory_taken(percent))
            }
            // A little above the last peak that was written: files take time.
            _ => live_bytes > before + before / PROFILE_PEAK_DIVISOR,
        };
        if !is_due {
            return;
        }
        // One thread writes at a time: a peak replaces the file of the last one.
        if self.profile.is_writing.swap(true, Ordering::Acquire) {
            return;
        }
        let order = Ordering::Relaxed;
        if written.compare_exchange(before, live_bytes.max(1), order, order).is_ok() {
            let name = if at == ProfileAtChoice::Peak { "peak" } else { "limit" };
            self.write_profile_of(format_args!("{name}"));
        }
        self.profile.is_writing.store(false, Ordering::Release);
    }

    /// Whether this share of `EBB_LIMIT` is resident.
    fn is_near_limit(&self, percent: u8) -> bool {
        let pages = self.pages.lock();
        let held_units = pages.counts.held() as u128;
        let is_near =
            |limit: NonZeroUsize| held_units * 100 >= limit.get() as u128 * percent as u128;
        pages.limit.is_some_and(is_near)
    }

    /// Whether this share of the memory is taken that the process may have. False if that was asked
    /// a moment ago.
    fn is_memory_taken(&self, percent: u8) -> bool {
        let (now_ms, asked) = (self.os.now_ms(), &self.profile.asked_ms);
        if now_ms.saturating_sub(asked.load(Ordering::Relaxed)) < PROFILE_LIMIT_LOOK_MS {
            return false;
        }
        asked.store(now_ms, Ordering::Relaxed);
        self.os.memory_taken_percent().is_some_and(|taken| taken >= percent as u64)
    }

    /// Writes the profile at the exit of the process, if it is to be.
    pub(crate) fn finish_profile(&self) {
        if self.is_ready() && self.profiles_exit() {
            self.write_profile_of(format_args!("exit"));
        }
    }

    /// Writes the profile to a file whose name has the process and the occasion.
    #[inline(never)]
    fn write_profile_of(&self, occasion: fmt::Arguments) {
        let mut path = self.setup().profile_to.of_process(ProcessName::of(&self.os));
        let separator = if path.is_empty() { "./" } else { "/" };
        let process = self.os.process_id();
        // Writing to a path never fails: it cuts.
        let _ = write!(path, "{separator}ebb.{process}.{occasion}.heap");
        let is_written = path.c_str().is_some_and(|path| self.write_profile(path));
        let had_failed = self.profile.has_failed.swap(!is_written, Ordering::Relaxed);
        if !is_written && !had_failed {
            let name = path.shown();
            Line::print(
                &self.os,
                format_args!(
                    "cannot write the heap profile to {name}; \
                     EBB_PROFILE_TO must be a directory with room"
                ),
            );
        }
    }
}
