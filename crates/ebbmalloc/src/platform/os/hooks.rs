//! The hooks by which a process serves an engine, on any platform.

/// A process that serves an engine by hooks.
pub trait Process: Sync {
    /// The hooks, if the process serves this engine.
    const HOOKS: Option<&'static Hooks>;
}

impl Process for () {
    const HOOKS: Option<&'static Hooks> = None;
}

/// The functions by which a process serves an engine. They get no engine as an argument, and there
/// may be several in the process: each function knows its own.
pub struct Hooks {
    /// Runs before a fork: `Engine::before_fork`.
    pub before_fork: extern "C" fn(),
    /// Runs after a fork in the parent: `Engine::after_fork`.
    pub after_fork: extern "C" fn(),
    /// Runs after a fork in the child: `Engine::after_fork_in_child`.
    pub after_fork_in_child: extern "C" fn(),
    /// Runs when a watched thread exits, once or twice, the last time with true:
    /// `Engine::uncount_thread`, and the last time `Engine::leave_thread` too, then
    /// `Engine::notify_scavenger`.
    pub at_thread_exit: extern "C" fn(bool),
    /// Runs when the process exits, if statistics are on, blocks are checked or hardened, or a heap
    /// profile is to be written: `Engine::finish`.
    pub at_exit: extern "C" fn(),
    /// Runs when an access faults, if blocks are sampled: `Engine::explain_fault`. Takes the
    /// addresses of the access and of the instruction.
    pub at_fault: extern "C" fn(usize, usize),
    /// Runs on the signal that `EBB_PROFILE_AT` names: `Engine::ask_for_profile`.
    pub at_profile_signal: extern "C" fn(),
    /// The body of the scavenger's thread: `Engine::scavenge`.
    pub scavenge: extern "C" fn(),
}
