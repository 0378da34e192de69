//! Which front end is in force, and why: decided at set-up, by what the options ask for and what works here.

use core::fmt::{Display, Formatter, Result as Written};

use crate::engine::tuning::OWN_CACHES_PER_CPU;
use crate::platform::options::ModeChoice;
use crate::platform::os::RseqArea;

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
    /// What is done with blocks beside handing them out: "check", "harden", "sample" (`EBB_CHECK` and so on), or nothing.
    pub care: &'static str,
    /// The kernel's version: its first two numbers. Asked for when somebody wants to know.
    pub kernel: [u32; 2],
}

impl Choice {
    /// Before set-up.
    pub(crate) const UNSET: Self =
        Self { mode: "", id: "", why: "", others: "", no_percpu: "", care: "", kernel: [0; 2] };
}

impl Display for Choice {
    fn fmt(&self, f: &mut Formatter) -> Written {
        let Self { mode, id, why, others, no_percpu, care, kernel: [major, minor] } = self;
        let by = if id.is_empty() { "" } else { " by " };
        write!(
            f,
            "{} mode {mode}{by}{id} ({why}; Linux {major}.{minor}",
            crate::platform::VERSION
        )?;
        if !others.is_empty() {
            write!(f, "; possible too: {others}")?;
        }
        if !no_percpu.is_empty() && no_percpu != why {
            write!(f, "; not percpu: {no_percpu}")?;
        }
        f.write_str(match *care {
            "check" => "), each block checked (EBB_CHECK)",
            "harden" => "), hardened (EBB_HARDEN)",
            "sample" => "), some blocks sampled (EBB_SAMPLE)",
            _ => ")",
        })
    }
}

/// How many threads may have caches of their own in thread mode. Where nobody asked for that, so few that what all caches hold is
/// bounded by CPUs (decisions/0021).
pub(crate) fn own_caches(asked: ModeChoice, cpus: usize) -> usize {
    if asked == ModeChoice::Thread { usize::MAX } else { cpus.saturating_mul(OWN_CACHES_PER_CPU) }
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
