//! Declares Linux as a platform. `memory.rs`, `threads.rs`, `process.rs` and `reports.rs` implement
//! the contract (`interface.rs`).
//!
//! Nothing there needs the C library to be initialised: the dynamic loader may ask for the first
//! block before any constructor has run.

use core::marker::PhantomData;

/// Linux as the platform of the engine that process `P` serves.
///
/// `P` is a type and not a field. So an engine that is not set up consists of zeros, and takes no
/// space in the program's file.
#[derive(Clone, Copy, Default, Debug)]
pub struct LinuxFor<P>(PhantomData<P>);

impl<P> LinuxFor<P> {
    /// The platform's value.
    pub const NEW: Self = Self(PhantomData);
}

/// Linux as the platform of engines that no process serves.
pub type Linux = LinuxFor<()>;
/// The value of type [`Linux`](type@Linux).
#[expect(non_upper_case_globals, reason = "reads as a value of a unit type")]
pub const Linux: Linux = Linux::NEW;
