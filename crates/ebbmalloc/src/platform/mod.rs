//! What the engine asks of the machine: the operating system, atomics and locks, options, messages.

pub(crate) mod os;
pub(crate) mod sync;
pub(crate) mod random;
pub(crate) mod prefetch;
pub(crate) mod message;
pub(crate) mod demangle;
pub(crate) mod options;
