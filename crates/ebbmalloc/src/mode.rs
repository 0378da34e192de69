//! Which front end is in force, and why: decided at set-up, by what the options ask for and what works here.

use core::fmt::{Display, Formatter, Result as Written};

use crate::engine::Engine;
use crate::options::ModeChoice;
use crate::os::{Os, RseqArea};

/// A front end (`front/`), the one that works everywhere first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Slot,
    Thread,
    PerCpu,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Self::PerCpu => "percpu",
            Self::Thread => "thread",
            Self::Slot => "slot",
        }
    }
}

/// The front end in force, why this one, and what else would work. Shown as text, it is what the statistics
/// begin with.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// "percpu", "thread" or "slot".
    pub mode: &'static str,
    /// What picks the cache in percpu mode, "mm_cid" or "cpu_id"; else empty.
    pub id: &'static str,
    /// Why this mode.
    pub why: &'static str,
    /// Which other modes would work here.
    pub others: &'static str,
    /// Why percpu mode would not; empty where it would.
    pub no_percpu: &'static str,
    /// The kernel's version: its first two numbers. Asked for when somebody wants to know.
    pub kernel: [u32; 2],
}

impl Choice {
    /// Before set-up.
    pub(crate) const UNSET: Self =
        Self { mode: "", id: "", why: "", others: "", no_percpu: "", kernel: [0; 2] };
}

impl Display for Choice {
    fn fmt(&self, f: &mut Formatter) -> Written {
        let Self { mode, id, why, others, no_percpu, kernel: [major, minor] } = self;
        let by = if id.is_empty() { "" } else { " by " };
        write!(f, "{} mode {mode}{by}{id} ({why}; Linux {major}.{minor}", crate::VERSION)?;
        if !others.is_empty() {
            write!(f, "; possible too: {others}")?;
        }
        if !no_percpu.is_empty() && no_percpu != why {
            write!(f, "; not percpu: {no_percpu}")?;
        }
        f.write_str(")")
    }
}

/// What set-up decides about caches.
pub(crate) struct Decision {
    pub mode: Mode,
    /// In percpu mode, where threads have their rseq areas.
    pub area: Option<RseqArea>,
    /// The mode that was asked for where that is not possible.
    pub refused: Option<Mode>,
    pub choice: Choice,
}

impl<O: Os> Engine<O> {
    /// Decides on the mode.
    pub(crate) fn choose_mode(&self, asked: ModeChoice) -> Decision {
        const ASKED: &str = "asked for by EBB_MODE";
        let area = self.os.rseq();
        let (mode, possible) = match asked {
            ModeChoice::Auto | ModeChoice::PerCpu => (Mode::PerCpu, self.prepare_percpu(area)),
            ModeChoice::Thread => {
                let slabs = self.watch_threads().and_then(|()| self.thread_slabs.set_up(&self.os));
                (Mode::Thread, slabs)
            }
            ModeChoice::Slot => (Mode::Slot, Ok(())),
        };
        let by_itself = match area {
            Ok(area) if area.ours => "the C library registers no rseq, so ebbmalloc does",
            _ => "glibc registered rseq",
        };
        let (mode, why, refused) = match possible {
            Ok(()) if asked == ModeChoice::Auto => (mode, by_itself, None),
            Ok(()) => (mode, ASKED, None),
            Err(why) => (Mode::Slot, why, (asked != ModeChoice::Auto).then_some(mode)),
        };
        let no_percpu = match possible {
            Err(why) if mode == Mode::Slot && refused != Some(Mode::Thread) => why,
            _ => area.err().unwrap_or(""),
        };
        // Asks for nothing to be done.
        let threads = refused != Some(Mode::Thread) && self.os.watch_threads(None).is_ok();
        let others = match (mode, no_percpu.is_empty(), threads) {
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

    /// What set-up decided, as it is told.
    pub(crate) fn told(&self, decided: Choice) -> Choice {
        Choice { kernel: self.os.kernel(), ..decided }
    }

    /// Sees to it that threads can register themselves, where nobody does it for them.
    fn prepare_percpu(&self, area: Result<RseqArea, &'static str>) -> Result<(), &'static str> {
        if area?.ours { self.watch_threads() } else { Ok(()) }
    }

    fn watch_threads(&self) -> Result<(), &'static str> {
        self.os.watch_threads(self.os.hooks().map(|hooks| hooks.at_thread_exit))
    }
}
