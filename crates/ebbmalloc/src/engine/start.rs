//! Set-up: reads the options, chooses the mode, reserves memory, and publishes the engine as ready.

use crate::backend::region::Region;
use crate::engine::DefaultHeaps;
use crate::engine::SafetyMode;
use crate::engine::mode::Choice;
use crate::engine::mode::Decision;
use crate::engine::mode::Mode;
use crate::engine::mode::own_caches;
use crate::engine::{Engine, READY};
use crate::frontend::rseq::PerCpuBase;
use crate::frontend::transfer_cache as transfer;
use crate::platform::message::Line;
use crate::platform::options::CAREFUL;
use crate::platform::options::CheckChoice;
use crate::platform::options::ExplainChoice;
use crate::platform::options::HardenChoice;
use crate::platform::options::LimitChoice;
use crate::platform::options::Options;
use crate::platform::options::ScavengerChoice;
use crate::platform::options::StatsChoice;
use crate::platform::options::TELLING;
use crate::platform::os::Os;
use crate::platform::sync::Ordering;
use crate::safety::seal::Secret;
use crate::telemetry::beacon::Beacon;
use crate::telemetry::beacon::CarefulAddresses;
use crate::telemetry::ledger::CHECKED;
use crate::telemetry::ledger::HARDENED;
use crate::telemetry::ledger::SAMPLED;
use crate::telemetry::ledger::name_of_safety_mode;
use core::num::NonZeroUsize;

/// [`Engine::state`] where the region could not be reserved: the next call tries again.
const FAILED: u32 = 2;

impl<O: Os> Engine<O> {
    /// True once the engine can serve. Sets it up if need be.
    #[inline]
    pub(crate) fn ready(&self) -> bool {
        self.is_ready() || self.start()
    }

    /// Sets the engine up, which otherwise the first allocation does. False if no address space
    /// can be had; the next call tries again.
    #[cold]
    #[inline(never)]
    pub fn start(&self) -> bool {
        let guard = self.starting.lock();
        if self.is_ready() {
            return true;
        }
        if let Some(why) = self.os.objection() {
            self.fail(why);
        }
        // SAFETY: under the lock, and nobody reads before the state says ready.
        let setup = unsafe { &mut *self.setup.get() };
        setup.options = Options::read(&self.os);
        if !TELLING && setup.options.is_telling() {
            let text = format_args!(
                "EBB_STATS and EBB_EXPLAIN are ignored: this program has ebbmalloc without its feature `stats`"
            );
            Line::print(&self.os, text);
        }
        let Decision { mode, area, refused, choice } = self.choose_mode(setup.options.mode);
        let caches = self.os.cpus();
        let transfers = transfer::count(caches);
        let slabs = caches + transfers;
        let reserved = self.region.set_up(&self.os, slabs);
        if let Some(area) = area {
            setup.place = PerCpuBase::new(area, self.region.slabs(), caches);
            setup.joining = area.ours;
        }
        let counted = TELLING && setup.options.stats != StatsChoice::Off;
        // SAFETY: under the lock, and nobody reads before something is committed.
        unsafe {
            let open = mode == Mode::PerCpu && !counted;
            *self.hot_place.get() = if open { setup.place } else { PerCpuBase::UNSET };
        }
        let lit = reserved && self.publish_beacon(mode.name(), slabs);
        let care = if lit {
            let memory = self.os.memory_limit();
            self.pages.lock().retention.limit_bytes = memory.unwrap_or(0) as usize;
            self.set_limit(setup.options.limit, memory);
            self.set_up_safety_mode(&setup.options)
        } else {
            None
        };
        let Some((care, default_heaps)) = care else {
            if self.state.swap(FAILED, Ordering::Relaxed) != FAILED {
                Line::print(&self.os, format_args!("cannot map memory; is `ulimit -v` too low?"));
            }
            return false;
        };
        (setup.care, setup.default_heaps) = (care, default_heaps);
        if let Some(asked) = refused {
            let (asked, why, mode) = (asked.name(), choice.why, choice.mode);
            let text = format_args!("EBB_MODE={asked} is not possible: {why}; using {mode}");
            Line::print(&self.os, text);
        }
        match setup.care {
            SafetyMode::Off => self.set_up_samples(setup.options.sample),
            SafetyMode::Checked => {}
            SafetyMode::Hardened => setup.secret = Secret(self.os.random(), self.os.random()),
        }
        let care = match setup.care {
            SafetyMode::Checked => CHECKED,
            SafetyMode::Hardened => HARDENED,
            SafetyMode::Off if self.sampling() => SAMPLED,
            SafetyMode::Off => 0,
        };
        self.published_safety_mode.store(care, Ordering::Relaxed);
        let choice = Choice { care: name_of_safety_mode(care), ..choice };
        if TELLING && setup.options.explain == ExplainChoice::On {
            Line::print(&self.os, format_args!("{}", self.described(choice)));
        }
        (setup.mode, setup.choice) = (mode, Some(choice));
        (setup.caches, setup.transfers) = (caches, transfers);
        setup.own_caches = own_caches(setup.options.mode, caches);
        let area = setup.place.area;
        let watched = counted || setup.care != SafetyMode::Off;
        if setup.options.scavenger == ScavengerChoice::Off {
            self.scavenger.never();
        } else {
            self.note_first_thread(self.os.thread_words());
        }
        // The kernel's function for this is found by a file, which a filter may forbid later.
        self.os.now_ms();
        self.state.store(READY, Ordering::Release);
        if mode == Mode::PerCpu && !watched {
            self.hot_area.store(area, Ordering::Release);
            if !self.sampling() {
                self.hot_sized_area.store(area, Ordering::Release);
            }
        }
        drop(guard);
        // These may allocate, which by now is possible.
        if let Some(hooks) = self.os.hooks() {
            if setup.options.scavenger != ScavengerChoice::Off {
                let _ = self.os.watch_threads(Some(hooks.at_thread_exit));
            }
            self.os.claim_thread_key();
            self.os.at_fork(hooks.before_fork, hooks.after_fork, hooks.after_fork_in_child);
            if watched {
                // A program in production keeps the descriptors that it has without.
                self.os.at_exit(hooks.at_exit, counted || setup.care == SafetyMode::Checked);
            }
            if self.sampling() {
                self.os.watch_faults(hooks.at_fault);
            }
        }
        true
    }

    fn set_limit(&self, choice: LimitChoice, memory: Option<u64>) {
        let bytes = match choice {
            LimitChoice::None => return,
            LimitChoice::Bytes(bytes) => Some(bytes),
            LimitChoice::Percent(share) => {
                memory.map(|all| (all as u128 * share as u128 / 100) as u64)
            }
        };
        match bytes {
            Some(bytes) => {
                let units = NonZeroUsize::new(bytes as usize / Region::UNIT_COST);
                self.pages.lock().limit = units.or(Some(NonZeroUsize::MIN));
            }
            None => Line::print(
                &self.os,
                format_args!(
                    "EBB_LIMIT is ignored: nothing says how much memory there is; give it in bytes"
                ),
            ),
        }
    }

    /// What set-up does: which care is taken, and where the heaps lie that all blocks are of that are no other's. `None` while
    /// memory is too short for that: a program that asked for care does not run without.
    pub(crate) fn set_up_safety_mode(
        &self,
        options: &Options,
    ) -> Option<(SafetyMode, DefaultHeaps)> {
        if !CAREFUL {
            if options.is_careful() {
                let text = format_args!(
                    "EBB_CHECK, EBB_HARDEN and EBB_SAMPLE are ignored: this program has ebbmalloc without its feature `careful`"
                );
                Line::print(&self.os, text);
            }
            return Some((SafetyMode::Off, DefaultHeaps::NONE));
        }
        if options.check != CheckChoice::Off {
            let first = self.set_up_check()?;
            if options.harden != HardenChoice::Off {
                let text =
                    format_args!("EBB_HARDEN is ignored: EBB_CHECK looks at each block already");
                Line::print(&self.os, text);
            }
            return Some((SafetyMode::Checked, DefaultHeaps { first, count: 1, units: 1 }));
        }
        match options.harden {
            HardenChoice::Off => Some((SafetyMode::Off, DefaultHeaps::NONE)),
            HardenChoice::On => {
                self.set_up_harden().map(|default_heaps| (SafetyMode::Hardened, default_heaps))
            }
        }
    }

    /// Makes this heap visible for other processes. False where memory is short.
    pub(crate) fn publish_beacon(&self, mode: &str, caches: usize) -> bool {
        let _pages = self.pages.lock();
        if self.region.commit_up_to(&self.os, 1).is_err() {
            return false;
        }
        let careful = {
            let table = self.check_table.lock();
            CarefulAddresses {
                care_at: (&raw const self.published_safety_mode).addr(),
                chunks_at: table.chunks().map(|chunks| (&raw const *chunks).addr()),
                held_back_at: (&raw const *table.held_back()).addr(),
                sampled_at: (&raw const *self.samples.reserved()).addr(),
            }
        };
        let (places, threads) = (self.region.places(), self.thread_slabs.shown_at());
        let beacon = Beacon::new(&self.os, places, mode, caches, threads, careful);
        // SAFETY: the first unit was committed, and its records with it; nobody else starts this engine.
        unsafe { beacon.light(&self.region) };
        true
    }
}
