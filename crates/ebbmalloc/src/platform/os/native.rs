//! Names the implementation of the contract with the operating system that this build has.

use core::marker::PhantomData;

/// The system as the platform of the engine that process `P` serves.
///
/// `P` is a type and not a field. So an engine that is not set up consists of zeros, and takes no
/// space in the program's file.
#[derive(Clone, Copy, Default, Debug)]
pub struct NativeFor<P>(PhantomData<P>);

impl<P> NativeFor<P> {
    /// The platform's value.
    pub const NEW: Self = Self(PhantomData);
}

/// The system as the platform of engines that no process serves.
pub type Native = NativeFor<()>;
/// The value of type [`Native`](type@Native).
#[expect(non_upper_case_globals, reason = "reads as a value of a unit type")]
pub const Native: Native = Native::NEW;
