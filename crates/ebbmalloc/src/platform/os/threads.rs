//! Keeps words of each thread for the engine, and notices the exit of threads.
//!
//! Uses neither `std` nor Rust's thread-local variables, whose access costs a call in a shared
//! library.

use core::ffi::c_void;
use core::mem::offset_of;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU16, AtomicU32, Ordering, fence};
use core::{mem, ptr};

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(miri, loom))))]
use super::thread_variable::thread_variable;
use crate::platform::kernel::auxiliary::page_size;
use crate::platform::kernel::errno::keeping_errno;
use crate::platform::kernel::futex;
use crate::platform::kernel::syscall::{advise, call};

/// A thread's words for the engine, all zero in a new thread.
///
/// Mostly the thread itself and its signal handlers use them, which needs an order of the
/// compiler's only. Other threads ask by [`OsThreads::may_be`].
///
/// [`OsThreads::may_be`]: super::interface::OsThreads::may_be
#[derive(Default, Debug)]
#[repr(C)]
pub struct ThreadWords {
    /// The state of the thread's own cache (`frontend/per_thread.rs`).
    pub(crate) state: AtomicU32,
    /// Whether the thread counts for the scavenger (`backend/scavenger_state.rs`). Only the thread
    /// itself uses this word and those of profiles.
    pub(crate) company: AtomicU16,
    /// The last bits of the gate of the heap profile for which `profile_left` was drawn
    /// (`engine/profile`).
    pub(crate) profile_gate: AtomicU16,
    /// The slab of the thread's own cache; null if it has none.
    pub(crate) own: AtomicPtr<u8>,
    /// The kernel's number of the thread; 0 before the first [`number`].
    pub(crate) number: AtomicU32,
    /// Bytes that the thread may still allocate before a block is sampled for the heap profile.
    pub(crate) profile_left: AtomicI32,
}

impl ThreadWords {
    /// The words of a new thread.
    pub const fn new() -> Self {
        Self {
            state: AtomicU32::new(0),
            company: AtomicU16::new(0),
            profile_gate: AtomicU16::new(0),
            own: AtomicPtr::new(ptr::null_mut()),
            number: AtomicU32::new(0),
            profile_left: AtomicI32::new(0),
        }
    }

    /// Whether the thread is in state `state`: [`OsThreads::may_be`] for words that are certainly
    /// mapped.
    ///
    /// [`OsThreads::may_be`]: super::interface::OsThreads::may_be
    pub fn say(&self, state: u32) -> bool {
        self.state.load(Ordering::Acquire) == state
    }
}

/// Implements [`super::interface::OsThreads::may_be`].
///
/// The kernel compares the word, as it copes with an unmapped address: the destructor below does
/// not run for all threads that end. It misses those that end by the bare system call, or first
/// allocate in one of the last rounds of destructors.
pub(super) fn may_be(words: *const ThreadWords, state: u32) -> bool {
    let word = words.wrapping_byte_add(offset_of!(ThreadWords, state));
    let may_be = match futex::holds(word.cast(), state) {
        Ok(equal) => equal,
        // If memory is short, the kernel may only have failed to make the page resident.
        Err(libc::EFAULT) => is_mapped(word.addr()),
        Err(_) => true,
    };
    fence(Ordering::Acquire);
    may_be
}

/// Whether a page may be mapped at this address; false if it certainly is not.
///
/// mremap(2) of a page to its own size changes nothing, and fails for an unmapped page since Linux
/// 5.16. MADV_COLD fails for one since 5.4. Filters of system calls allow both, but not
/// mincore(2).
fn is_mapped(address: usize) -> bool {
    let page = page_size();
    // SAFETY: a mapping of this page stays as it is.
    let resized = unsafe { call!(libc::SYS_mremap, address / page * page, page, page, 0_usize) };
    let start = ptr::with_exposed_provenance_mut(address / page * page);
    // SAFETY: the contents stay. The kernel may swap the page out a little sooner.
    resized != Err(libc::EFAULT)
        && unsafe { advise(start, page, libc::MADV_COLD) } != Err(libc::ENOMEM)
}

/// The symbol of the words. It includes the version: a program may contain several versions of
/// this crate.
#[cfg(not(any(miri, loom)))]
macro_rules! symbol {
    () => {
        concat!("__ebbmalloc_thread_", env!("CARGO_PKG_VERSION"))
    };
}

// The words, a thread variable. The loader sets it up, all zero.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(miri, loom))))]
core::arch::global_asm!(
    ".pushsection .tbss.ebbmalloc, \"awT\", @nobits",
    concat!(".globl ", symbol!()),
    concat!(".hidden ", symbol!()),
    concat!(".type ", symbol!(), ", @object"),
    concat!(".size ", symbol!(), ", {size}"),
    ".balign 16",
    concat!(symbol!(), ":"),
    ".zero {size}",
    ".popsection",
    size = const size_of::<ThreadWords>(),
);

/// Whether each thread has words of its own.
const HAS_WORDS: bool =
    cfg!(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(miri, loom))));

/// The address of the calling thread's words.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(miri, loom))))]
#[inline(always)]
pub(super) fn words() -> *const ThreadWords {
    thread_variable!(symbol!()).cast()
}

/// The address of words that all threads share where they have none of their own. Nothing is
/// stored in them, as [`prepare`] fails.
#[cfg(any(miri, loom, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(super) fn words() -> *const ThreadWords {
    static NONE: ThreadWords = ThreadWords::new();
    &raw const NONE
}

/// The kernel's number of the calling thread; 0 if the kernel refuses to tell. Each thread makes
/// the system call once: a filter that it installs later may kill for gettid(2).
pub(super) fn number() -> u32 {
    // SAFETY: the words live as long as the thread.
    let cached = unsafe { &(*words()).number };
    let number = cached.load(Ordering::Relaxed);
    if number != 0 {
        return number;
    }
    // SAFETY: the call touches no memory.
    let number = unsafe { call!(libc::SYS_gettid) }.map_or(0, |number| number as u32);
    if HAS_WORDS {
        cached.store(number, Ordering::Relaxed);
    }
    number
}

/// The key whose destructor runs when a thread exits. [`NO_KEY`] before the first thread is
/// watched: set-up cannot create it, as another library's pthread_key_create(3) may allocate.
static KEY: AtomicU32 = AtomicU32::new(NO_KEY);
const NO_KEY: u32 = u32::MAX;
/// The function that the destructor calls.
static EXIT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Implements [`super::interface::OsThreads::watch_threads`], as far as set-up can tell. Any
/// thread may call it at any time.
pub(super) fn prepare(exit: Option<extern "C" fn(bool)>) -> Result<(), &'static str> {
    if !HAS_WORDS {
        return Err("no variables of threads for this architecture yet");
    }
    let Some(exit) = exit else { return Ok(()) };
    EXIT.store(exit as *mut c_void, Ordering::Relaxed);
    Ok(())
}

/// Creates the key, if threads will be watched.
///
/// Called early, so that the key is one of the first 32. glibc keeps their values in the thread's
/// descriptor; for later keys pthread_setspecific(3) allocates a block. If that is the thread's
/// first block, the engine calls pthread_setspecific(3) inside that call: then glibc loses the
/// engine's value, and leaks a block.
pub(super) fn claim_key() {
    if !EXIT.load(Ordering::Relaxed).is_null() {
        keeping_errno(key);
    }
}

/// The key, which this creates if need be. [`NO_KEY`] if the C library has none left. Threads may
/// call this at the same time.
fn key() -> u32 {
    let mut key = KEY.load(Ordering::Relaxed);
    if key == NO_KEY {
        // SAFETY: the call fills the key. The destructor lives as long as the program. The key
        // that is deleted is this thread's, which no other has seen.
        unsafe {
            if libc::pthread_key_create(&mut key, Some(leave)) != 0 {
                return NO_KEY;
            }
            const ORDER: Ordering = Ordering::Relaxed;
            // Another thread may have been faster.
            if let Err(first) = KEY.compare_exchange(NO_KEY, key, ORDER, ORDER) {
                libc::pthread_key_delete(key);
                key = first;
            }
        }
    }
    key
}

/// Watches the calling thread. False if the C library has no key left, or no memory for its value,
/// for which it may ask the engine.
pub(super) fn watch() -> bool {
    watch_round(1)
}

/// Makes the destructor run in the next round, with this number.
fn watch_round(round: usize) -> bool {
    let value = ptr::without_provenance(round);
    // SAFETY: the key was created, or is `NO_KEY`, for which the call fails.
    keeping_errno(|| unsafe { libc::pthread_setspecific(key(), value) }) == 0
}

/// The destructor of the key: runs when a watched thread exits.
///
/// Destructors run in rounds, at least four (POSIX), and only for values that are set. In the
/// first round this one asks for the next round too, so that other destructors of the first still
/// find a cache. It asks no further: a thread that first allocates in a late round must not keep
/// its cache for ever.
///
/// # Safety
/// `prepare` was called with a function before.
unsafe extern "C" fn leave(round: *mut c_void) {
    let is_last = round.addr() != 1 || !watch_round(2);
    let exit = EXIT.load(Ordering::Relaxed);
    // SAFETY: `prepare` stored a function of this type before any thread was watched.
    unsafe { mem::transmute::<*mut c_void, extern "C" fn(bool)>(exit)(is_last) }
}

#[cfg(all(test, not(any(miri, loom))))]
mod tests {
    use super::*;
    use crate::platform::kernel::syscall::{map, unmap};

    #[test]
    fn the_number_of_a_thread_is_the_kernel_s() {
        // SAFETY: gettid(2) has no conditions.
        let kernel = || unsafe { libc::gettid() } as u32;
        let other = std::thread::spawn(move || assert_eq!([number(), number()], [kernel(); 2]));
        assert_eq!([number(), number()], [kernel(); 2]);
        other.join().unwrap();
    }

    #[test]
    fn words_are_looked_at_even_where_they_are_gone() {
        let words = ThreadWords::new();
        words.state.store(3, Ordering::Relaxed);
        assert_eq!([1, 3].map(|state| may_be(&words, state)), [false, true]);
        // Nothing is ever mapped there.
        assert!(!may_be(ptr::without_provenance(16), 0));
    }

    #[test]
    fn words_that_nobody_may_read_are_not_gone() {
        let bytes = 64 << 10;
        // SAFETY: the mapping is new, and only this test knows it.
        unsafe {
            let hidden = map(ptr::null_mut(), bytes, libc::PROT_NONE, 0).unwrap();
            assert!(may_be(hidden.cast(), 0));
            unmap(hidden, bytes);
        }
    }
}
