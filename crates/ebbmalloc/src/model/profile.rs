//! A model of the switch of the heap profile, with the words that it opens and closes.

use crate::platform::sync::{AtomicU32, Lock, Ordering};
use crate::telemetry::profile::gate::{Gate, HotPaths, REQUEST, Session};

/// A mistake to make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProfileMistake {
    /// None.
    None,
    /// At the end, frees are not watched any more, although blocks live.
    CloseTooFar,
    /// A thread samples a block although the session that it saw is over.
    EnterUnasked,
}

/// The switch, as the engine uses it.
pub struct ProfileSwitch {
    gate: Gate,
    session: Lock<Session>,
    hot_area: AtomicU32,
    hot_sized_area: AtomicU32,
    mistake: ProfileMistake,
}

impl ProfileSwitch {
    /// A switch of a profile that is off, in percpu mode.
    pub fn new(mistake: ProfileMistake) -> Self {
        Self {
            gate: Gate::new(),
            session: Lock::new(Session::new()),
            hot_area: AtomicU32::new(1),
            hot_sized_area: AtomicU32::new(1),
            mistake,
        }
    }

    fn set_hot_paths(&self, (alloc, sized): HotPaths) {
        self.hot_sized_area.store(sized as u32, Ordering::Release);
        self.hot_area.store(alloc as u32, Ordering::Release);
    }

    /// Switches the profile on.
    pub fn open(&self) {
        let mut session = self.session.lock();
        self.gate.open(&mut session, true, |paths| self.set_hot_paths(paths));
    }

    /// Switches the profile off.
    pub fn close(&self) {
        let (mut session, hot) = (self.session.lock(), |paths| self.set_hot_paths(paths));
        match self.mistake {
            ProfileMistake::CloseTooFar => self.gate.close_too_far(&mut session, hot),
            _ => self.gate.close(&mut session, hot),
        }
    }

    /// Does what another process does to remind the engine of a request.
    pub fn remind(&self) {
        self.hot_area.store(0, Ordering::Release);
        self.gate.remind();
    }

    /// Allocates. Returns whether the block is sampled.
    pub fn alloc(&self) -> bool {
        let gate = match self.gate.load() {
            REQUEST => {
                let session = self.session.lock();
                self.gate.restore(&session, |paths| self.set_hot_paths(paths));
                drop(session);
                self.gate.load()
            }
            gate => gate,
        };
        if gate <= REQUEST {
            return false;
        }
        let mut session = self.session.lock();
        self.gate.enter(&mut session, gate) || self.mistake == ProfileMistake::EnterUnasked
    }

    /// Whether a free that trusts its size looks at the address.
    pub fn looks(&self) -> bool {
        self.hot_sized_area.load(Ordering::Acquire) == 0 && self.gate.is_watching()
    }

    /// Frees a sampled block.
    pub fn free(&self) {
        let mut session = self.session.lock();
        self.gate.leave(&mut session, |paths| self.set_hot_paths(paths));
    }

    /// Whether the hot paths of allocations and of frees are open.
    pub fn is_open(&self) -> (bool, bool) {
        let is_open = |word: &AtomicU32| word.load(Ordering::Acquire) != 0;
        (is_open(&self.hot_area), is_open(&self.hot_sized_area))
    }
}
