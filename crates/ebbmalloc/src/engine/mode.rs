//! Names the front ends (modes).

/// A front end (`frontend/`). Slot mode works everywhere.
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
