//! Reads stacks beside the unwinder of the process, and tables with random mistakes.

#[cfg(not(miri))]
mod beside;
#[cfg(not(miri))]
mod foreign;
mod mutated;
