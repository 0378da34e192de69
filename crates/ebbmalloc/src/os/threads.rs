//! What a thread keeps for the engine, and how its exit is noticed, without `std` and without
//! thread-local variables of Rust, which in a shared library cost a call.

use core::ffi::c_void;
use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering, fence};
use core::{mem, ptr};

use super::futex;
use super::linux::keeping_errno;

/// What a thread keeps for the engine: all zero in a new thread. Mostly the thread and its signal
/// handlers look, for whom nothing but the compiler need be kept in order; others by [`Os::may_be`].
///
/// [`Os::may_be`]: super::Os::may_be
#[derive(Default, Debug)]
#[repr(C)]
pub struct ThreadWords {
    /// How things stand with what belongs to the thread.
    pub(crate) state: AtomicU32,
    /// Whether it counts as one of several (`scavenger.rs`). Only the thread itself looks.
    pub(crate) company: AtomicU32,
    /// What belongs to the thread.
    pub(crate) own: AtomicPtr<u8>,
}

impl ThreadWords {
    /// The words of a new thread.
    pub const fn new() -> Self {
        Self {
            state: AtomicU32::new(0),
            company: AtomicU32::new(0),
            own: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// [`Os::may_be`] of words that are there for certain.
    ///
    /// [`Os::may_be`]: super::Os::may_be
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

/// False if nothing is mapped at this address for certain. By mremap(2) of a page to the same size, which does
/// nothing, and which filters of system calls allow, other than mincore(2).
fn is_mapped(address: usize) -> bool {
    // SAFETY: the mapping, if there is one, stays as it is; the address of this thread's errno is valid while
    // the thread lives.
    keeping_errno(|| unsafe {
        let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        let start = ptr::without_provenance_mut(address / page * page);
        libc::mremap(start, page, page, 0) != libc::MAP_FAILED
            || *libc::__errno_location() != libc::EFAULT
    })
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

/// The calling thread's words. Their distance from the thread pointer is known once the program
/// or the library is loaded ("initial-exec"), so this takes no call.
#[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
#[inline(always)]
pub(super) fn words() -> *const ThreadWords {
    let words: *const ThreadWords;
    // SAFETY: the word that the thread pointer points to is its own address; the distance is in
    // the global offset table. Both stay the same while the thread lives.
    unsafe {
        core::arch::asm!(
            "mov {words}, qword ptr fs:[0]",
            concat!("add {words}, qword ptr [rip + ", symbol!(), "@GOTTPOFF]"),
            words = out(reg) words,
            options(pure, nomem, nostack),
        );
    }
    words
}

/// As above.
#[cfg(all(target_arch = "aarch64", not(any(miri, loom))))]
#[inline(always)]
pub(super) fn words() -> *const ThreadWords {
    let words: *const ThreadWords;
    // SAFETY: as above; here a register holds the thread pointer.
    unsafe {
        core::arch::asm!(
            concat!("adrp {distance}, :gottprel:", symbol!()),
            concat!("ldr {distance}, [{distance}, :gottprel_lo12:", symbol!(), "]"),
            "mrs {words}, tpidr_el0",
            "add {words}, {words}, {distance}",
            words = out(reg) words,
            distance = out(reg) _,
            options(pure, nomem, nostack),
        );
    }
    words
}

/// No thread has words here: [`prepare`] says so, and nothing is ever stored in these.
#[cfg(any(miri, loom, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(super) fn words() -> *const ThreadWords {
    static NONE: ThreadWords = ThreadWords::new();
    &raw const NONE
}

/// The key whose destructor is called when a thread exits; `NO_KEY` before there is one.
static KEY: AtomicU32 = AtomicU32::new(NO_KEY);
const NO_KEY: u32 = u32::MAX;
/// What the destructor calls.
static EXIT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Has `exit` called in threads that are watched; or why that is not possible. Any thread may ask for this at any time: only
/// the first call does something.
pub(super) fn prepare(exit: Option<extern "C" fn(bool)>) -> Result<(), &'static str> {
    if cfg!(any(miri, loom, not(any(target_arch = "x86_64", target_arch = "aarch64")))) {
        return Err("no variables of threads for this architecture yet");
    }
    let Some(exit) = exit else { return Ok(()) };
    EXIT.store(exit as *mut c_void, Ordering::Relaxed);
    if KEY.load(Ordering::Relaxed) == NO_KEY {
        let mut key = NO_KEY;
        // SAFETY: fills the key; the function lives as long as the program.
        if keeping_errno(|| unsafe { libc::pthread_key_create(&mut key, Some(leave)) }) != 0 {
            return Err("no key for the data of threads is left");
        }
        if KEY.compare_exchange(NO_KEY, key, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            // SAFETY: just created, and used nowhere.
            keeping_errno(|| unsafe { libc::pthread_key_delete(key) });
        }
    }
    Ok(())
}

/// Watches the calling thread. False if the C library has no memory for that, for which it may
/// ask the engine.
pub(super) fn watch() -> bool {
    watch_round(1)
}

fn watch_round(round: usize) -> bool {
    let key = KEY.load(Ordering::Relaxed);
    let value = ptr::without_provenance(round);
    // SAFETY: the key was created, or there is none and the call fails.
    keeping_errno(|| unsafe { libc::pthread_setspecific(key, value) }) == 0
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
    use super::super::mapping;
    use super::*;

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
        let hidden = mapping::reserve(bytes, bytes).unwrap();
        assert!(may_be(hidden.as_ptr().cast(), 0));
        // SAFETY: reserved above, and nobody else knows of it.
        unsafe { libc::munmap(hidden.as_ptr().cast(), bytes) };
    }
}
