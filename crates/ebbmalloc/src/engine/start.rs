//! Set-up: reads the options, chooses the mode and the region's addresses, and publishes the engine
//! as ready.

use crate::backend::huge_pages::{HUGE_BYTES, HugeAnswer};
use crate::backend::region::Region;
use crate::engine::tuning::OWN_CACHES_PER_CPU;
use crate::engine::{DefaultHeaps, Engine, READY, SafetyMode, Setup};
use crate::figures::choice::Choice;
use crate::frontend::Mode;
use crate::frontend::rseq::PerCpuBase;
use crate::frontend::transfer_cache as transfer;
use crate::options::{
    CAREFUL, CheckChoice, ExplainChoice, HardenChoice, HugeChoice, LimitChoice, ModeChoice,
    Options, PROFILING, ProfileChoice, SampleChoice, ScavengerChoice, Settings, StatsChoice,
    TELLING,
};
use crate::platform::message::Line;
use crate::platform::os::{Os, RseqArea};
use crate::platform::read_options::BAD_OPTION;
use crate::platform::sync::Ordering;
use crate::safety::seal::Secret;
use crate::telemetry::beacon::{Beacon, CarefulAddresses, ProfileAddresses};
use crate::telemetry::ledger::{CHECKED, HARDENED, SAMPLED, name_of_safety_mode};
use core::num::NonZeroUsize;

/// [`Engine::state`] after a set-up that found too little memory: the next call tries again.
const FAILED: u32 = 2;

impl<O: Os> Engine<O> {
    /// Whether the engine can serve. Sets it up first where that is still to do.
    #[inline]
    pub(crate) fn ready(&self) -> bool {
        self.is_ready() || self.start()
    }

    /// Sets the engine up; otherwise the first allocation does. False if memory or address space is
    /// short; the next call tries again.
    pub fn start(&self) -> bool {
        self.start_with(&Settings::NONE)
    }

    /// Sets the engine up, with the options that the program's code sets.
    #[cold]
    #[inline(never)]
    pub(crate) fn start_with(&self, settings: &Settings) -> bool {
        let guard = self.setup_lock.lock();
        if self.is_ready() {
            return true;
        }
        self.abort_on_sanitizer();
        // SAFETY: this thread holds the lock, and others read `setup` only once `state` is READY.
        let setup = unsafe { &mut *self.setup.get() };
        self.read_options(setup, settings);
        let (mode, area, refused, choice) = self.choose_mode(setup.options.mode);
        let counted = TELLING && setup.options.stats != StatsChoice::Off;
        if !self.set_up_heap(setup, mode, area, counted) {
            return false;
        }
        if let Some(asked) = refused {
            let (asked, why, mode) = (asked.name(), choice.why, choice.mode);
            Line::print(
                &self.os,
                format_args!("EBB_MODE={asked} is not possible: {why}; using {mode}"),
            );
        }
        self.tell_conflicts(&setup.options);
        let choice = Choice { care: self.begin_safety_mode(setup), ..choice };
        if TELLING && setup.options.explain == ExplainChoice::On {
            let limit_units = self.pages.lock().limit.map_or(0, NonZeroUsize::get);
            let limit_bytes = (limit_units * Region::UNIT_COST) as u64;
            let choice = Choice { limit_bytes, kernel: self.os.kernel(), ..choice };
            Line::print(&self.os, format_args!("{choice}"));
        }
        (setup.mode, setup.choice) = (mode, Some(choice));
        // Unless `EBB_MODE` sets thread mode, the number of CPUs bounds the memory in caches
        // (decisions/0021).
        setup.own_caches_max = match setup.options.mode {
            ModeChoice::Thread => usize::MAX,
            _ => setup.cpu_cache_count.saturating_mul(OWN_CACHES_PER_CPU),
        };
        let watched = counted || setup.safety_mode != SafetyMode::Off;
        let is_hot = mode == Mode::PerCpu && !watched;
        let area = if is_hot { setup.percpu_base.area } else { 0 };
        if setup.options.scavenger == ScavengerChoice::Off {
            self.scavenger.never();
        } else {
            self.note_first_thread(self.os.thread_words());
        }
        // The first reading of the clock looks its function up in a file, which a filter may forbid
        // later.
        self.os.now_ms();
        // Before the engine is ready: from then on a heap profile may close the hot paths.
        self.store_hot_areas(area, (true, true));
        self.state.store(READY, Ordering::Release);
        drop(guard);
        self.register_hooks(counted, watched);
        self.begin_profile_if_begun();
        true
    }

    /// Aborts a program with a sanitizer.
    fn abort_on_sanitizer(&self) {
        if let Some(sanitizer) = self.os.objection() {
            Line::print(
                &self.os,
                format_args!(
                    "{sanitizer} needs a malloc of its own; \
                     neither preload ebbmalloc here, nor link it"
                ),
            );
            self.os.abort();
        }
    }

    /// Reads the options, and tells which of them this build leaves out.
    fn read_options(&self, setup: &mut Setup, settings: &Settings) {
        setup.options = Options::read(&self.os, settings);
        setup.stats_to = setup.options.stats_to.read(&self.os, "EBB_STATS_TO");
        setup.profile_to = setup.options.profile_to.read(&self.os, "EBB_PROFILE_TO");
        if !PROFILING && setup.options.profile != ProfileChoice::Off {
            let text = format_args!(
                "EBB_PROFILE is ignored: build the program with ebbmalloc's feature `profile`"
            );
            Line::print(&self.os, text);
        }
        if !TELLING && setup.options.is_telling() {
            let text = format_args!(
                "EBB_STATS and EBB_EXPLAIN are ignored: \
                 build the program with ebbmalloc's feature `stats`"
            );
            Line::print(&self.os, text);
        }
    }

    /// Sets up the region with its slabs, the limits and the safety mode's heaps, and publishes the
    /// beacon. `counted`: the engine counts operations. False if memory is short, after a message.
    fn set_up_heap(
        &self,
        setup: &mut Setup,
        mode: Mode,
        area: Option<RseqArea>,
        counted: bool,
    ) -> bool {
        let cpu_caches = self.os.cpus();
        let transfer_caches = transfer::count(cpu_caches);
        let slab_count = cpu_caches + transfer_caches;
        let has_region = self.region.set_up(&self.os, slab_count);
        if let Some(area) = area {
            setup.percpu_base = PerCpuBase::new(area, self.region.slabs(), cpu_caches);
            setup.registers_threads = area.ours;
        }
        // SAFETY: this thread holds the lock. Others read `hot_base` only to free a block, and no
        // block exists yet.
        unsafe {
            let open = mode == Mode::PerCpu && !counted;
            *self.hot_base.get() = if open { setup.percpu_base } else { PerCpuBase::UNSET };
        }
        let published = has_region && self.publish_beacon(mode.name(), slab_count);
        let safety = if published {
            let memory_bytes = self.os.memory_limit();
            // Guard pages would break huge ones.
            let hardened = setup.options.harden != HardenChoice::Off;
            let has_huge_pages = !hardened && self.os.has_huge_pages(HUGE_BYTES);
            let huge = if hardened { HugeChoice::Never } else { setup.options.huge };
            {
                let mut pages = self.pages.lock();
                let now_ms = self.os.now_ms();
                pages.retention.memory_bytes = memory_bytes.unwrap_or(0) as usize;
                pages.retention.purges.begin(now_ms);
                pages.huge.set_up(huge, has_huge_pages, now_ms);
            }
            self.set_purge_delay(setup.options.purge_delay);
            self.set_limit(setup.options.limit, memory_bytes);
            self.set_up_safety_mode(&setup.options)
        } else {
            None
        };
        let Some((safety_mode, default_heaps)) = safety else {
            if self.state.swap(FAILED, Ordering::Relaxed) != FAILED {
                Line::print(
                    &self.os,
                    format_args!("cannot map memory for the heap; raise `ulimit -v`"),
                );
            }
            return false;
        };
        (setup.safety_mode, setup.default_heaps) = (safety_mode, default_heaps);
        (setup.cpu_cache_count, setup.transfer_cache_count) = (cpu_caches, transfer_caches);
        true
    }

    /// Completes the set-up of the safety mode, and publishes the mode. Returns its name.
    fn begin_safety_mode(&self, setup: &mut Setup) -> &'static str {
        match setup.safety_mode {
            SafetyMode::Off => self.set_up_samples(setup.options.sample),
            SafetyMode::Checked => {}
            SafetyMode::Hardened => setup.secret = Secret(self.os.random(), self.os.random()),
        }
        let published_mode = match setup.safety_mode {
            SafetyMode::Checked => CHECKED,
            SafetyMode::Hardened => HARDENED,
            SafetyMode::Off if self.sampling() => SAMPLED,
            SafetyMode::Off => 0,
        };
        self.published_safety_mode.store(published_mode, Ordering::Relaxed);
        name_of_safety_mode(published_mode)
    }

    /// Registers the functions that the process calls at forks, exits and faults, in an engine that
    /// is ready. `counted`: the engine counts operations. `watched`: it does, or checks or hardens
    /// blocks.
    fn register_hooks(&self, counted: bool, watched: bool) {
        // Shared from now on: other threads may read it.
        let setup = self.setup();
        // The calls below may allocate, which now works.
        if let Some(hooks) = self.os.hooks() {
            if setup.options.scavenger != ScavengerChoice::Off {
                let _ = self.os.watch_threads(Some(hooks.at_thread_exit));
            }
            self.os.create_thread_key();
            self.os.at_fork(hooks.before_fork, hooks.after_fork, hooks.after_fork_in_child);
            let is_checked = setup.safety_mode == SafetyMode::Checked;
            if counted || is_checked {
                // With `true` this takes a file descriptor, to print also after the program has
                // closed its standard error.
                self.os.keep_stderr(setup.stats_to.is_empty() || is_checked);
            }
            if watched || self.profiles_exit() {
                self.has_exit_hook.store(true, Ordering::Relaxed);
                self.os.at_exit(hooks.at_exit);
            }
            if self.sampling() {
                self.os.watch_faults(hooks.at_fault);
            }
        } else {
            // In tests: no start of a program follows.
            self.profile.has_begun.store(true, Ordering::Relaxed);
        }
    }

    /// Chooses the front end: the mode that `EBB_MODE` sets (`asked`), or the best that works here.
    /// Returns it, the threads' rseq areas in percpu mode, the mode that was asked for but does not
    /// work here, and the description of the choice.
    fn choose_mode(&self, asked: ModeChoice) -> (Mode, Option<RseqArea>, Option<Mode>, Choice) {
        const ASKED: &str = "set by EBB_MODE";
        let area = self.os.rseq();
        let auto_reason = match area {
            Ok(area) if area.ours => "the C library registers no rseq, so ebbmalloc does",
            _ => "glibc registered rseq",
        };
        let mut no_percpu = area.err().unwrap_or("");
        // With `None` this only asks whether threads can be watched.
        let mut thread_works = self.os.watch_threads(None).is_ok();
        let (mode, why, refused) = match asked {
            ModeChoice::Slot => (Mode::Slot, ASKED, None),
            ModeChoice::Thread => match self.prepare_threads() {
                Ok(()) => (Mode::Thread, ASKED, None),
                Err(why) => {
                    thread_works = false;
                    (Mode::Slot, why, Some(Mode::Thread))
                }
            },
            ModeChoice::Auto | ModeChoice::PerCpu => match self.prepare_percpu(area) {
                Ok(()) if asked == ModeChoice::Auto => (Mode::PerCpu, auto_reason, None),
                Ok(()) => (Mode::PerCpu, ASKED, None),
                Err(why) => {
                    no_percpu = why;
                    thread_works = self.prepare_threads().is_ok();
                    let mode = if thread_works { Mode::Thread } else { Mode::Slot };
                    (mode, why, (asked == ModeChoice::PerCpu).then_some(Mode::PerCpu))
                }
            },
        };
        let others = match (mode, no_percpu.is_empty(), thread_works) {
            (Mode::PerCpu, _, true) => "thread, slot",
            (Mode::PerCpu, _, false) => "slot",
            (Mode::Thread, true, _) => "percpu, slot",
            (Mode::Thread, false, _) => "slot",
            (Mode::Slot, true, true) => "percpu, thread",
            (Mode::Slot, true, false) => "percpu",
            (Mode::Slot, false, true) => "thread",
            (Mode::Slot, false, false) => "",
        };
        let in_force = area.ok().filter(|_| mode == Mode::PerCpu);
        let choice = Choice {
            mode: mode.name(),
            id: in_force.map_or("", |area| area.id),
            why,
            others,
            no_percpu,
            ..Choice::UNSET
        };
        (mode, in_force, refused, choice)
    }

    /// Prepares for percpu mode. Where no C library registers threads for rseq, the engine must see
    /// them exit.
    fn prepare_percpu(&self, area: Result<RseqArea, &'static str>) -> Result<(), &'static str> {
        if area?.ours { self.watch_threads() } else { Ok(()) }
    }

    /// Prepares for thread mode: the engine must see threads exit, and needs slabs for them.
    fn prepare_threads(&self) -> Result<(), &'static str> {
        self.watch_threads().and_then(|()| self.thread_slabs.set_up(&self.os))
    }

    fn watch_threads(&self) -> Result<(), &'static str> {
        self.os.watch_threads(self.os.hooks().map(|hooks| hooks.at_thread_exit))
    }

    /// Sets the limit of `EBB_LIMIT`. `memory_bytes` is the memory that the process may have, if
    /// known.
    fn set_limit(&self, choice: LimitChoice, memory_bytes: Option<u64>) {
        match Self::limit_units(choice, memory_bytes) {
            Some(limit) => self.pages.lock().limit = limit,
            None => {
                let text = format_args!(
                    "EBB_LIMIT is a share of memory whose amount is unknown, so the program does \
                     not start; give the limit in bytes"
                );
                Line::print(&self.os, text);
                self.os.exit(BAD_OPTION);
            }
        }
    }

    /// Decides on the safety mode, and makes its default heaps. `None` while memory is too short
    /// for them: a program that asks for a safety mode does not run without it.
    pub(crate) fn set_up_safety_mode(
        &self,
        options: &Options,
    ) -> Option<(SafetyMode, DefaultHeaps)> {
        if !CAREFUL {
            if options.is_careful() {
                let text = format_args!(
                    "EBB_CHECK, EBB_HARDEN and EBB_SAMPLE are ignored: \
                     build the program with ebbmalloc's feature `careful`"
                );
                Line::print(&self.os, text);
            }
            return Some((SafetyMode::Off, DefaultHeaps::NONE));
        }
        if options.check != CheckChoice::Off {
            let first = self.set_up_check()?;
            return Some((SafetyMode::Checked, DefaultHeaps { first, count: 1, units: 1 }));
        }
        match options.harden {
            HardenChoice::Off => Some((SafetyMode::Off, DefaultHeaps::NONE)),
            HardenChoice::On => {
                self.set_up_harden().map(|default_heaps| (SafetyMode::Hardened, default_heaps))
            }
        }
    }

    /// Tells which options have no effect because of others.
    fn tell_conflicts(&self, options: &Options) {
        let tell = |ignored: &str, because: &str| {
            Line::print(
                &self.os,
                format_args!("{ignored} is ignored because {because} is set; unset one"),
            );
        };
        let is_checked = CAREFUL && options.check != CheckChoice::Off;
        let is_hardened = CAREFUL && options.harden != HardenChoice::Off;
        if is_checked && is_hardened {
            tell("EBB_HARDEN", "EBB_CHECK");
        }
        if (is_checked || is_hardened) && options.sample != SampleChoice::Off {
            tell("EBB_SAMPLE", if is_checked { "EBB_CHECK" } else { "EBB_HARDEN" });
        }
        let answer = self.pages.lock().huge.answer;
        match options.huge {
            HugeChoice::Always if is_hardened => tell("EBB_HUGE", "EBB_HARDEN"),
            HugeChoice::Always if answer == HugeAnswer::Missing => Line::print(
                &self.os,
                format_args!("EBB_HUGE=always is not possible: {}", answer.why()),
            ),
            _ => {}
        }
    }

    /// Writes the beacon, by which other processes find this heap. False if memory is short.
    pub(crate) fn publish_beacon(&self, mode: &str, slab_count: usize) -> bool {
        let pages = self.pages.lock();
        if self.region.commit_up_to(&self.os, 1).is_err() {
            return false;
        }
        let careful = {
            let table = self.check_table.lock();
            CarefulAddresses {
                safety_mode_at: (&raw const self.published_safety_mode).addr(),
                chunks_at: table.chunks().map(|chunks| (&raw const *chunks).addr()),
                held_back_at: (&raw const *table.held_back()).addr(),
                sampled_at: (&raw const *self.samples.reserved()).addr(),
                limit_at: (&raw const pages.limit).addr(),
                huge_at: [
                    (&raw const pages.counts.huge_pages).addr(),
                    (&raw const pages.huge.answer).addr(),
                ],
            }
        };
        let profile = ProfileAddresses {
            shown_at: if PROFILING { (&raw const self.profile.shown).addr() } else { 0 },
            memory_at: {
                let table = self.profile.table.lock();
                table.all_chunks().map(|chunks| (&raw const *chunks).addr())
            },
            filter_at: self.profile.filter_word().addr(),
            hot_area_at: (&raw const self.hot_area).addr(),
        };
        let (places, threads) = (self.region.places(), self.thread_slabs.shown_at());
        let beacon = Beacon::new(&self.os, places, mode, slab_count, threads, careful, profile);
        // SAFETY: the first unit is committed, and its records with it. The caller holds
        // `setup_lock`, so no other thread writes the beacon.
        unsafe { beacon.light(&self.region) };
        true
    }
}
