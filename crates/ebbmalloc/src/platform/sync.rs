//! Atomics, and the one lock of the engine. Under `--cfg loom` what protocols are made of is loom's,
//! so that the tests in `crates/testkit/tests/loom.rs` explore every interleaving of this code;
//! other atomics are none of a protocol, or lie in raw memory, where loom's cannot.

pub use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering};
#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU32, AtomicU64 as ProtocolU64};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64 as ProtocolU64};

#[cfg(not(loom))]
mod cell {
    /// `core`'s cell with the tracked access that loom's has.
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

/// Declares constructors that are `const` in every build but loom's, whose types cannot be.
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
/// How often a waiter looks before it sleeps. Sections are short; longer than this and the
/// holder is probably not running.
const SPINS: u32 = if cfg!(loom) { 1 } else { 100 };

/// A lock around a value: spins briefly, then sleeps on a futex. All zero bytes are a free lock.
///
/// States and transitions as in Drepper, "Futexes are tricky", mutex 2.
pub struct Lock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only by whoever holds the lock.
unsafe impl<T: Send> Sync for Lock<T> {}
// SAFETY: owning the lock is owning the value.
unsafe impl<T: Send> Send for Lock<T> {}

impl<T> Lock<T> {
    const_fn! {
        /// A free lock.
        pub fn new(value: T) -> Self {
            Self { state: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
        }
    }

    /// Waits until the lock is free and takes it.
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

    /// Whether nobody holds the lock right now.
    #[inline]
    pub fn is_free(&self) -> bool {
        self.state.load(Ordering::Relaxed) == FREE
    }

    fn guard(&self) -> Guard<'_, T> {
        Guard { lock: self, value: ManuallyDrop::new(self.value.get_mut()) }
    }

    /// Takes the lock and keeps it beyond any guard, until [`Lock::force_unlock`]: for `fork`.
    pub fn hold(&self) {
        core::mem::forget(self.lock());
    }

    /// The guard that [`Lock::hold`] did without.
    ///
    /// # Safety
    /// The caller took the lock by that (in the child of a fork, its parent did), and has no other.
    pub unsafe fn resume(&self) -> Guard<'_, T> {
        self.guard()
    }

    /// Frees the lock whoever holds it.
    ///
    /// # Safety
    /// The caller took it by [`Lock::hold`] (in the child of a fork, its parent did).
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

/// Takes a lock that was not free.
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
        futex_wait(state, CONTENDED);
    }
}

/// The right to use the value of a [`Lock`], given back on drop.
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
    value: ManuallyDrop<MutPtr<T>>,
}

impl<T> core::ops::Deref for Guard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so the lock is held, by us.
        unsafe { &*self.value.with(|value| value) }
    }
}

impl<T> core::ops::DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed exclusively.
        unsafe { &mut *self.value.with(|value| value) }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard holds the lock and ends here; the access ends first.
        unsafe {
            ManuallyDrop::drop(&mut self.value);
            self.lock.force_unlock()
        }
    }
}
