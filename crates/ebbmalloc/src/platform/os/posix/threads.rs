//! Keeps words of each thread, notices its exit, and starts a thread of the engine's own.
//!
//! A thread's words lie in a block of the C library's, to which a key leads
//! (pthread_key_create(3)). So no thread-local variable is needed: those of macOS are gone before a
//! key's destructor runs.

use core::ffi::c_void;
use core::mem::{self, MaybeUninit};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use super::super::end::without_signals;
use super::super::hooks::Process;
use super::super::interface::{OsThreads, RseqArea};
use super::super::native::NativeFor;
use super::super::signal::OWN_SIGNALS;
use super::super::thread_words::ThreadWords;
use super::system::{is_first, is_single, thread_number};
use crate::platform::arch::thread_pointer;
use crate::platform::errno::keeping_errno;
use crate::platform::kernel::cancellation::without_cancellation;

/// What there is of each thread, all zero in a new one.
#[repr(C)]
struct OwnBlock {
    words: ThreadWords,
    /// How often the destructor of the key has run.
    rounds: AtomicU32,
    /// Whether the thread is watched.
    is_watched: AtomicBool,
}

/// The key and 1; 0 before there is one.
static KEY: AtomicUsize = AtomicUsize::new(0);
/// The function that the end of a watched thread calls.
static EXIT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// Whether a thread other than the first has been watched.
static HAD_THREADS: AtomicBool = AtomicBool::new(false);
/// For threads without a block, as memory was short, or the C library has no key left. They are not
/// watched.
static NONE: OwnBlock = OwnBlock {
    words: ThreadWords::new(),
    rounds: AtomicU32::new(0),
    is_watched: AtomicBool::new(false),
};

impl<P: Process> OsThreads for NativeFor<P> {
    fn cpus(&self) -> usize {
        // SAFETY: the call has no conditions.
        keeping_errno(|| unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }).max(1) as usize
    }

    fn rseq(&self) -> Result<RseqArea, &'static str> {
        Err("this system has no restartable sequences")
    }

    fn thread_token(&self) -> usize {
        // Descriptors of threads are longer than 256 bytes.
        thread_pointer() >> 8
    }

    fn thread_id(&self) -> u32 {
        thread_number()
    }

    #[inline(always)]
    fn thread_words(&self) -> &ThreadWords {
        // SAFETY: the words live as long as the thread, and the reference does not leave it.
        unsafe { &(*own_block()).words }
    }

    /// Words are there as long as a thread has a cache, which it gives up before they are freed. In
    /// the child of a fork, the blocks of other threads are still there.
    #[expect(clippy::not_unsafe_ptr_arg_deref, reason = "the engine asks of such threads only")]
    fn may_be(&self, words: *const ThreadWords, state: u32) -> bool {
        // SAFETY: the block is freed in the last round.
        unsafe { (*words).is_in(state) }
    }

    fn is_first(&self) -> bool {
        is_first()
    }

    fn is_single(&self) -> bool {
        is_single()
    }

    fn had_threads(&self) -> bool {
        HAD_THREADS.load(Ordering::Relaxed)
    }

    fn watch_threads(&self, exit: Option<extern "C" fn(bool)>) -> Result<(), &'static str> {
        if let Some(exit) = exit {
            EXIT.store(exit as *mut c_void, Ordering::Relaxed);
        }
        Ok(())
    }

    fn watch_thread(&self) -> bool {
        let own = own_block();
        if ptr::eq(own, &NONE) {
            return false;
        }
        // SAFETY: the block lives as long as the thread.
        unsafe { (*own).is_watched.store(true, Ordering::Relaxed) };
        if !is_first() {
            HAD_THREADS.store(true, Ordering::Relaxed);
        }
        true
    }

    /// The thread inherits the mask: it takes no signal that is sent to the process.
    #[allow(clippy::unnecessary_cast, reason = "threads are pointers or numbers")]
    fn start_thread(&self, work: extern "C" fn()) -> Option<usize> {
        let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
        let argument = work as *mut c_void;
        // SAFETY: all arguments outlive their calls. pthread_create fills `thread` if it returns 0.
        keeping_errno(|| unsafe {
            let result = without_signals(OWN_SIGNALS, || {
                libc::pthread_create(thread.as_mut_ptr(), ptr::null(), run, argument)
            });
            (result == 0).then(|| thread.assume_init() as usize)
        })
    }

    fn join_thread(&self, thread: usize) {
        // SAFETY: `start_thread` returned the thread, and the caller joins it once.
        keeping_errno(|| {
            without_cancellation(|| unsafe {
                libc::pthread_join(thread as libc::pthread_t, ptr::null_mut());
            })
        });
    }

    fn sleep_ms(&self, ms: u32) {
        let mut left = libc::timespec {
            tv_sec: i64::from(ms / 1000),
            tv_nsec: i64::from(ms % 1000 * 1_000_000),
        };
        // SAFETY: after a signal, the call fills in how much is left.
        keeping_errno(|| {
            without_cancellation(|| unsafe { while libc::nanosleep(&left, &mut left) != 0 {} });
        });
    }
}

extern "C" fn run(work: *mut c_void) -> *mut c_void {
    // SAFETY: `start_thread` passed a function of this type.
    unsafe { mem::transmute::<*mut c_void, extern "C" fn()>(work)() };
    ptr::null_mut()
}

/// The calling thread's block.
#[inline(always)]
fn own_block() -> *const OwnBlock {
    let key = KEY.load(Ordering::Relaxed);
    if key != 0 {
        // SAFETY: the key was created.
        let own = unsafe { libc::pthread_getspecific((key - 1) as libc::pthread_key_t) };
        if !own.is_null() {
            return own.cast();
        }
    }
    new_block()
}

/// Makes a block for the calling thread, and the key before the first.
#[cold]
#[inline(never)]
fn new_block() -> *const OwnBlock {
    // SAFETY: the key was created, or creating one failed. The block is the thread's alone.
    keeping_errno(|| unsafe {
        let Some(key) = key() else { return &raw const NONE };
        let own = libc::calloc(1, size_of::<OwnBlock>());
        if own.is_null() || libc::pthread_setspecific(key, own) != 0 {
            libc::free(own);
            return &raw const NONE;
        }
        own.cast_const().cast()
    })
}

/// The key, which this creates if need be; `None` if the C library has none left. Threads may call
/// this at the same time.
fn key() -> Option<libc::pthread_key_t> {
    const ORDER: Ordering = Ordering::Relaxed;
    let known = KEY.load(ORDER);
    if known != 0 {
        return Some((known - 1) as libc::pthread_key_t);
    }
    let mut key = 0;
    // SAFETY: the call fills the key. The destructor lives as long as the program. The key that is
    // deleted is this thread's, which no other has seen.
    unsafe {
        if libc::pthread_key_create(&mut key, Some(leave)) != 0 {
            return None;
        }
        // Another thread may have been faster.
        if let Err(first) = KEY.compare_exchange(0, key as usize + 1, ORDER, ORDER) {
            libc::pthread_key_delete(key);
            key = (first - 1) as libc::pthread_key_t;
        }
    }
    Some(key)
}

/// The destructor of the key: runs when a thread exits that has a block.
///
/// Destructors run in rounds, four on all these systems, and only for values that are set. In the
/// first round the thread keeps its cache for the destructors of other keys. In each later one it
/// gives up what it has, and the last frees the words. A destructor that allocates behind that one
/// makes words and a cache that stay.
///
/// # Safety
/// `own` is the thread's block, and a function to call was stored before the thread was watched.
unsafe extern "C" fn leave(own: *mut c_void) {
    const LAST_ROUND: u32 = 4;
    const LEAVES_IN: u32 = 2;
    let own = own.cast::<OwnBlock>();
    // SAFETY: the caller guarantees both. The block is freed once: its key has no value then.
    keeping_errno(|| unsafe {
        let Some(key) = key() else { return };
        let round = (*own).rounds.fetch_add(1, Ordering::Relaxed) + 1;
        libc::pthread_setspecific(key, own.cast());
        if (*own).is_watched.load(Ordering::Relaxed) {
            let exit = EXIT.load(Ordering::Relaxed);
            mem::transmute::<*mut c_void, extern "C" fn(bool)>(exit)(round >= LEAVES_IN);
        }
        if round >= LAST_ROUND {
            libc::pthread_setspecific(key, ptr::null());
            libc::free(own.cast());
        }
    });
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::super::super::native::Native;
    use super::*;

    #[test]
    fn threads_have_words_of_their_own() {
        let first = ptr::from_ref(Native.thread_words()).addr();
        let (other, token) =
            thread::spawn(|| (ptr::from_ref(Native.thread_words()).addr(), Native.thread_token()))
                .join()
                .unwrap();
        assert_ne!((other, token), (first, Native.thread_token()));
        assert!(Native.cpus() >= 1 && Native.thread_id() > 0);
    }

    #[test]
    fn a_thread_of_our_own_runs_and_is_joined() {
        static HAS_RUN: AtomicBool = AtomicBool::new(false);
        extern "C" fn work() {
            HAS_RUN.store(true, Ordering::Relaxed);
        }
        Native.join_thread(Native.start_thread(work).unwrap());
        assert!(HAS_RUN.load(Ordering::Relaxed));
    }
}
