//! What a thread keeps for the engine, and how its exit is noticed, without `std` and without
//! thread-local variables of Rust, which in a shared library cost a call.

use core::ffi::c_void;
use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering, fence};
use core::{mem, ptr};

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(miri, loom))))]
use super::thread_variable::thread_variable;
use crate::platform::kernel::futex;
use crate::platform::kernel::syscall::{advise, call};
use crate::platform::kernel::{auxiliary::page_size, errno::keeping_errno};

/// What a thread keeps for the engine: all zero in a new thread. Mostly the thread and its signal
/// handlers look, for whom nothing but the compiler need be kept in order; others by [`Os::may_be`].
///
/// [`Os::may_be`]: super::interface::Os::may_be
#[derive(Default, Debug)]
#[repr(C)]
pub struct ThreadWords {
    /// How things stand with what belongs to the thread.
    pub(crate) state: AtomicU32,
    /// Whether it counts as one of several (`scavenger.rs`). Only the thread itself looks.
    pub(crate) company: AtomicU32,
    /// What belongs to the thread.
    pub(crate) own: AtomicPtr<u8>,
    /// The kernel's number of the thread; 0 before the first [`number`].
    pub(crate) number: AtomicU32,
}

impl ThreadWords {
    /// The words of a new thread.
    pub const fn new() -> Self {
        Self {
            state: AtomicU32::new(0),
            company: AtomicU32::new(0),
            own: AtomicPtr::new(ptr::null_mut()),
            number: AtomicU32::new(0),
        }
    }

    /// [`Os::may_be`] of words that are there for certain.
    ///
    /// [`Os::may_be`]: super::interface::Os::may_be
    pub fn say(&self, state: u32) -> bool {
        self.state.load(Ordering::Acquire) == state
    }
}

/// Compares the state of a thread with this one. The kernel does, as it minds no address where nothing is mapped any more: a thread that ended
/// without a call of the destructor below was not seen to leave. (It first allocated in one of the last rounds of
/// those, or ended by the bare system call.)
pub(super) fn may_be(words: *const ThreadWords, state: u32) -> bool {
    let word = words.wrapping_byte_add(offset_of!(ThreadWords, state));
    let may_be = match futex::holds(word.cast(), state) {
        Ok(equal) => equal,
        // Where memory is short the kernel may just have failed to get the page.
        Err(libc::EFAULT) => is_mapped(word.addr()),
        Err(_) => true,
    };
    fence(Ordering::Acquire);
    may_be
}

/// False if nothing is mapped at this address for certain. mremap(2) of a page to its own size
/// changes nothing, and fails there since Linux 5.16; MADV_COLD fails there since 5.4. Filters of
/// system calls allow both, but not mincore(2).
fn is_mapped(address: usize) -> bool {
    let page = page_size();
    // SAFETY: the mapping, if there is one, stays as it is.
    let told = unsafe { call!(libc::SYS_mremap, address / page * page, page, page, 0_usize) };
    let start = ptr::with_exposed_provenance_mut(address / page * page);
    // SAFETY: the contents stay. The page may be swapped out a little sooner.
    told != Err(libc::EFAULT)
        && unsafe { advise(start, page, libc::MADV_COLD) } != Err(libc::ENOMEM)
}

/// The name of the words of each thread: one of each version of this crate in a program.
#[cfg(not(any(miri, loom)))]
macro_rules! symbol {
    () => {
        concat!("__ebbmalloc_thread_", env!("CARGO_PKG_VERSION"))
    };
}

// A variable in the memory that the loader sets up for each thread, all zero.
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

/// The calling thread's words.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(miri, loom))))]
#[inline(always)]
pub(super) fn words() -> *const ThreadWords {
    thread_variable!(symbol!()).cast()
}

/// No thread has words here: [`prepare`] says so, and nothing is ever stored in these.
#[cfg(any(miri, loom, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(super) fn words() -> *const ThreadWords {
    static NONE: ThreadWords = ThreadWords::new();
    &raw const NONE
}

/// The kernel's number of the calling thread; 0 if the kernel refuses. Each thread asks once: a
/// filter that it installs later may kill for gettid(2).
pub(super) fn number() -> u32 {
    // SAFETY: they live as long as the thread.
    let known = unsafe { &(*words()).number };
    let number = known.load(Ordering::Relaxed);
    if number != 0 {
        return number;
    }
    // SAFETY: asks for a number.
    let number = unsafe { call!(libc::SYS_gettid) }.map_or(0, |number| number as u32);
    if HAS_WORDS {
        known.store(number, Ordering::Relaxed);
    }
    number
}

/// The key whose destructor is called when a thread exits; `NO_KEY` before the first thread is watched: the C library's
/// function may be another library's that allocates, which set-up could not serve.
static KEY: AtomicU32 = AtomicU32::new(NO_KEY);
const NO_KEY: u32 = u32::MAX;
/// What the destructor calls.
static EXIT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Has `exit` called in threads that are watched; or why that is not possible, as far as that is known by now.
/// Any thread may ask for this at any time.
pub(super) fn prepare(exit: Option<extern "C" fn(bool)>) -> Result<(), &'static str> {
    if !HAS_WORDS {
        return Err("no variables of threads for this architecture yet");
    }
    let Some(exit) = exit else { return Ok(()) };
    EXIT.store(exit as *mut c_void, Ordering::Relaxed);
    Ok(())
}

/// Creates the key, if threads are to be watched. Early, to be one of the first 32: glibc keeps
/// their values in the thread, and allocates a block in pthread_setspecific(3) for later keys. If
/// that block is a thread's first, the engine calls pthread_setspecific(3) in between; then glibc
/// loses the engine's value, and leaks a block.
pub(super) fn claim_key() {
    if !EXIT.load(Ordering::Relaxed).is_null() {
        keeping_errno(key);
    }
}

/// The key; `NO_KEY` where the C library has none left. Threads may come here at a time.
fn key() -> u32 {
    let mut key = KEY.load(Ordering::Relaxed);
    if key == NO_KEY {
        // SAFETY: fills the key; the function lives as long as the program. A key too many is given back.
        unsafe {
            if libc::pthread_key_create(&mut key, Some(leave)) != 0 {
                return NO_KEY;
            }
            let (order, other) = (Ordering::Relaxed, Ordering::Relaxed);
            if let Err(first) = KEY.compare_exchange(NO_KEY, key, order, other) {
                libc::pthread_key_delete(key);
                key = first;
            }
        }
    }
    key
}

/// Watches the calling thread. False if the C library has no key or no memory for that, for which it may
/// ask the engine.
pub(super) fn watch() -> bool {
    watch_round(1)
}

fn watch_round(round: usize) -> bool {
    let value = ptr::without_provenance(round);
    // SAFETY: the key was created, or there is none and the call fails.
    keeping_errno(|| unsafe { libc::pthread_setspecific(key(), value) }) == 0
}

/// Called when a watched thread exits. Destructors run in rounds, of which there are at least
/// four (POSIX), and only for values that are set: the first time, ours asks to be called in the
/// next round, so that the destructors of this one still find a cache. Not longer, since a
/// thread that first allocates in a late round must not keep its cache for ever.
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
        // SAFETY: asks for a number.
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
        // SAFETY: a new mapping, and nobody else knows of it.
        unsafe {
            let hidden = map(ptr::null_mut(), bytes, libc::PROT_NONE, 0).unwrap();
            assert!(may_be(hidden.cast(), 0));
            unmap(hidden, bytes);
        }
    }
}
