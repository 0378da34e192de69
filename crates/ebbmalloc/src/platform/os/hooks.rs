//! What the process does for an engine.

/// What the process around an engine is told to do for it. The engine is one of possibly many;
/// functions that take no argument must find it by themselves.
pub struct Hooks {
    /// Called before a fork: `Engine::before_fork`.
    pub before_fork: extern "C" fn(),
    /// Called after it in the parent: `Engine::after_fork`.
    pub after_fork: extern "C" fn(),
    /// Called after it in the child: `Engine::after_fork_in_child`.
    pub after_fork_in_child: extern "C" fn(),
    /// Called when a watched thread exits, once or twice, the last time with true: `Engine::uncount_thread`,
    /// and the last time `Engine::leave_thread`.
    pub at_thread_exit: extern "C" fn(bool),
    /// Called when the process exits, if statistics are wanted or blocks are checked: `Engine::finish`.
    pub at_exit: extern "C" fn(),
    /// Called when an access is refused, if blocks are sampled: `Engine::explain_fault`.
    pub at_fault: extern "C" fn(usize, usize),
    /// What a thread of the engine runs: `Engine::scavenge`.
    pub scavenge: extern "C" fn(),
}
