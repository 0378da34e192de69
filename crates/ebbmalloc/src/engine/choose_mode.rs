//! Chooses the front end at set-up: the mode that `EBB_MODE` sets, or the best that works here.

use crate::engine::Engine;
use crate::engine::mode::{Choice, Decision, Mode};
use crate::platform::options::ModeChoice;
use crate::platform::os::{Os, RseqArea};

impl<O: Os> Engine<O> {
    /// Decides on the mode. `asked` is the value of `EBB_MODE`.
    pub(crate) fn choose_mode(&self, asked: ModeChoice) -> Decision {
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
        Decision {
            mode,
            area: in_force,
            refused,
            choice: Choice {
                mode: mode.name(),
                id: in_force.map_or("", |area| area.id),
                why,
                others,
                no_percpu,
                ..Choice::UNSET
            },
        }
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
}
