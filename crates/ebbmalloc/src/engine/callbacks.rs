//! Holds the functions that the program wants called when memory is short.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize};

/// The program's functions, and when to call them. All are zero at first.
pub(crate) struct Callbacks {
    /// An `OnRefusal`; 0 for none.
    pub on_refusal: AtomicUsize,
    /// Whether a thread is in that function.
    pub is_refusing: AtomicBool,
    /// An `OnPressure`; 0 for none.
    pub on_pressure: AtomicUsize,
    /// The percentage of the limit from which on it is called.
    pub percent: AtomicU8,
    /// Whether it was called, and less was never held since.
    pub is_pressed: AtomicBool,
}

impl Callbacks {
    pub const fn new() -> Self {
        Self {
            on_refusal: AtomicUsize::new(0),
            is_refusing: AtomicBool::new(false),
            on_pressure: AtomicUsize::new(0),
            percent: AtomicU8::new(0),
            is_pressed: AtomicBool::new(false),
        }
    }
}
