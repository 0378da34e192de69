//! Provides atomics and the engine's only type of lock.
//!
//! Under `--cfg loom`, the types that protocols use are loom's. So the tests in
//! `crates/testkit/tests/loom.rs` explore every interleaving of this code. The other atomics stay
//! `core`'s: they take part in no protocol, or lie in raw memory, where loom's cannot.

pub use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering};
#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU32, AtomicU64 as ProtocolU64};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64 as ProtocolU64};

#[cfg(not(loom))]
mod cell {
    /// `core`'s cell with the interface of loom's, which tracks accesses.
    #[repr(transparent)]
    pub struct UnsafeCell<T>(core::cell::UnsafeCell<T>);
    impl<T> UnsafeCell<T> {
        pub const fn new(value: T) -> Self {
            Self(core::cell::UnsafeCell::new(value))
        }
        #[inline(always)]
        pub fn get_mut(&self) -> MutPtr<T> {
            MutPtr(self.0.get())
        }
    }
    pub struct MutPtr<T>(*mut T);
    impl<T> MutPtr<T> {
        #[inline(always)]
        pub fn with<R>(&self, work: impl FnOnce(*mut T) -> R) -> R {
            work(self.0)
        }
    }
}
#[cfg(not(loom))]
use cell::{MutPtr, UnsafeCell};
#[cfg(loom)]
use loom::cell::{MutPtr, UnsafeCell};

use core::mem::ManuallyDrop;

#[cfg(not(loom))]
use crate::platform::kernel::futex::{futex_wait, futex_wake, spin_hint};
#[cfg(loom)]
use crate::platform::kernel::loom_park::{futex_wait, futex_wake, spin_hint};

/// Declares a function that is `const`, except under loom, whose types have no `const`
/// constructors.
macro_rules! const_fn {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty $body:block) => {
        #[cfg(not(loom))]
        $(#[$meta])* $vis const fn $name($($arg: $ty),*) -> $ret $body
        #[cfg(loom)]
        $(#[$meta])* $vis fn $name($($arg: $ty),*) -> $ret $body
    };
}
pub(crate) use const_fn;

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;
/// Checks of the lock before a waiter sleeps. Critical sections are short: a holder that takes
/// longer has probably lost its CPU.
const SPINS: u32 = if cfg!(loom) { 1 } else { 100 };

/// A lock around a value. A waiter spins briefly, then sleeps on a futex. All-zero bytes are a free
/// lock.
///
/// States and transitions are those of mutex 2 in Drepper, "Futexes are tricky".
pub struct Lock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: only the holder of the lock reaches the value, so one thread at a time does.
unsafe impl<T: Send> Sync for Lock<T> {}
// SAFETY: the lock owns its value, which may be sent.
unsafe impl<T: Send> Send for Lock<T> {}

impl<T> Lock<T> {
    const_fn! {
        /// A free lock around `value`.
        pub fn new(value: T) -> Self {
            Self { state: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
        }
    }

    /// Takes the lock, after waiting for its holder to free it.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        self.try_lock().unwrap_or_else(|| {
            wait_for(&self.state);
            self.guard()
        })
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        try_take(&self.state).then(|| self.guard())
    }

    /// Whether the lock is free right now.
    #[inline]
    pub fn is_free(&self) -> bool {
        self.state.load(Ordering::Relaxed) == FREE
    }

    fn guard(&self) -> Guard<'_, T> {
        Guard { lock: self, value: ManuallyDrop::new(self.value.get_mut()) }
    }

    /// Takes the lock without a guard, until [`Lock::force_unlock`]. For `fork`.
    pub fn hold(&self) {
        core::mem::forget(self.lock());
    }

    /// Makes a guard of a lock that [`Lock::hold`] took.
    ///
    /// # Safety
    /// The caller took the lock by [`Lock::hold`], or in the child of a fork, its parent did. The
    /// lock has no other guard.
    pub unsafe fn resume(&self) -> Guard<'_, T> {
        self.guard()
    }

    /// Frees the lock.
    ///
    /// # Safety
    /// The caller took the lock by [`Lock::hold`], or in the child of a fork, its parent did; or
    /// the caller ends the lock's guard. Nothing refers to the value any more.
    pub unsafe fn force_unlock(&self) {
        if self.state.swap(FREE, Ordering::Release) == CONTENDED {
            futex_wake(&self.state);
        }
    }
}

#[inline]
fn try_take(state: &AtomicU32) -> bool {
    state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// Waits for a lock that was not free, and takes it.
#[cold]
#[inline(never)]
fn wait_for(state: &AtomicU32) {
    for _ in 0..SPINS {
        if state.load(Ordering::Relaxed) == FREE && try_take(state) {
            return;
        }
        spin_hint();
    }
    while state.swap(CONTENDED, Ordering::Acquire) != FREE {
        futex_wait(state, CONTENDED, None);
    }
}

/// Access to the value of a locked [`Lock`]. Dropping it frees the lock.
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
    value: ManuallyDrop<MutPtr<T>>,
}

impl<T> core::ops::Deref for Guard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: while this guard exists, it holds the lock, so no other thread uses the value.
        unsafe { &*self.value.with(|value| value) }
    }
}

impl<T> core::ops::DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock, and is itself borrowed exclusively.
        unsafe { &mut *self.value.with(|value| value) }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this guard holds the lock and ends here. The access to the value ends first.
        unsafe {
            ManuallyDrop::drop(&mut self.value);
            self.lock.force_unlock()
        }
    }
}
