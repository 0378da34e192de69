//! Tells threads apart, notices their exit, and starts a thread of the engine's own, hidden from
//! the program.

use core::ffi::{c_int, c_void};
use core::mem::{self, MaybeUninit, offset_of};
use core::ops::RangeInclusive;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering, fence};

use super::end::without_signals;
use super::hooks::Process;
use super::interface::{OsThreads, RseqArea};
use super::native::NativeFor;
use super::signal::OWN_SIGNALS;
use super::thread_words::ThreadWords;
use super::without_c_library::without_c_library;
use super::words;
use super::{own_area, rseq_area};
use crate::platform::arch::{IS_KNOWN, thread_pointer, weak};
use crate::platform::errno::keeping_errno;
use crate::platform::kernel::auxiliary::page_size;
use crate::platform::kernel::cancellation::without_cancellation;
use crate::platform::kernel::futex;
use crate::platform::kernel::proc::{affinity_cpus, highest_number, read_file};
use crate::platform::kernel::syscall::{advise, call, map};

/// The key whose destructor runs when a thread exits. [`NO_KEY`] before the first thread is
/// watched: set-up cannot create it, as another library's pthread_key_create(3) may allocate.
static KEY: AtomicU32 = AtomicU32::new(NO_KEY);
const NO_KEY: u32 = u32::MAX;
/// The function that the destructor calls.
static EXIT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// The smallest and the largest stack of the thread. The engine uses a page or two, but the
/// program's signal handlers may run on it too. All of it counts as address space (`ulimit -v`).
const STACK_BYTES: RangeInclusive<usize> = 256 << 10..=8 << 20;

impl<P: Process> OsThreads for NativeFor<P> {
    fn cpus(&self) -> usize {
        // Not by sysconf(3): glibc's reads a directory, and allocates for it.
        let mut text = [0; 256];
        let possible = read_file(c"/sys/devices/system/cpu/possible", &mut text);
        highest_number(possible).map_or_else(affinity_cpus, |last| last + 1).max(1)
    }

    fn rseq(&self) -> Result<RseqArea, &'static str> {
        rseq_area::find(self)
    }

    fn join_rseq(&self) -> bool {
        own_area::register().is_ok()
    }

    fn leave_rseq(&self) {
        own_area::unregister();
    }

    fn thread_token(&self) -> usize {
        // The C library's descriptors of threads lie at least a page apart.
        thread_pointer() >> 12
    }

    fn thread_id(&self) -> u32 {
        words::number()
    }

    #[inline(always)]
    fn thread_words(&self) -> &ThreadWords {
        // SAFETY: the words live as long as the thread, and the reference does not leave it.
        unsafe { &*words::words() }
    }

    /// The kernel compares the word, as it copes with an unmapped address: the destructor below
    /// does not run for all threads that end. It misses those that end by the bare system call, or
    /// first allocate in one of the last rounds of destructors.
    fn may_be(&self, words: *const ThreadWords, state: u32) -> bool {
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

    /// Makes a system call only the first time in a process and in each thread; in most programs
    /// set-up is the first to call.
    fn is_first(&self) -> bool {
        /// The number of the process, which is that of its first thread; 0 before it is known.
        static PROCESS: AtomicU32 = AtomicU32::new(0);
        if self.is_single() {
            return true;
        }
        let mut process = PROCESS.load(Ordering::Relaxed);
        if process == 0 {
            // SAFETY: the call touches no memory.
            process = unsafe { call!(libc::SYS_getpid) }.map_or(0, |number| number as u32);
            PROCESS.store(process, Ordering::Relaxed);
        }
        words::number() == process
    }

    /// glibc's variable is never true if there are more threads.
    fn is_single(&self) -> bool {
        libc_single_threaded() == Some(true)
    }

    fn had_threads(&self) -> bool {
        libc_single_threaded() == Some(false)
    }

    /// Tells as far as set-up can. Any thread may call it at any time.
    fn watch_threads(&self, exit: Option<extern "C" fn(bool)>) -> Result<(), &'static str> {
        if !IS_KNOWN {
            return Err("no variables of threads for this architecture yet");
        }
        if without_c_library().is_some() {
            return Err("the program has no C library, which would tell that threads end");
        }
        let Some(exit) = exit else { return Ok(()) };
        EXIT.store(exit as *mut c_void, Ordering::Relaxed);
        Ok(())
    }

    /// Called early, so that the key is one of the first 32. glibc keeps their values in the
    /// thread's descriptor; for later keys pthread_setspecific(3) allocates a block. If that is the
    /// thread's first block, the engine calls pthread_setspecific(3) inside that call: then glibc
    /// loses the engine's value, and leaks a block.
    fn create_thread_key(&self) {
        if !EXIT.load(Ordering::Relaxed).is_null() {
            keeping_errno(key);
        }
    }

    /// False also if the C library has no key left.
    fn watch_thread(&self) -> bool {
        watch_round(1)
    }

    /// Makes only the system calls that any pthread_create makes: a filter of the program's may
    /// kill for others. So the thread inherits name, CPUs and priority from the caller.
    fn start_thread(&self, work: extern "C" fn()) -> Option<usize> {
        mark_process();
        keeping_errno(|| {
            let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
            let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
            let mut stack_bytes = 0;
            let argument = work as *mut c_void;
            // SAFETY: all arguments outlive their calls. The attributes are used only between a
            // successful init and destroy; `thread` is filled if pthread_create returns 0.
            unsafe {
                if libc::pthread_attr_init(attributes.as_mut_ptr()) != 0 {
                    return None;
                }
                libc::pthread_attr_getstacksize(attributes.as_ptr(), &mut stack_bytes);
                let stack_bytes = stack_bytes.clamp(*STACK_BYTES.start(), *STACK_BYTES.end());
                libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), stack_bytes);
                // It inherits the mask: it must not take a signal to the process that all threads
                // of the program block.
                let kept = OWN_SIGNALS.into_iter().chain(RESERVED);
                let result = without_signals(kept, || {
                    libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), run, argument)
                });
                libc::pthread_attr_destroy(attributes.as_mut_ptr());
                (result == 0).then(|| thread.assume_init() as usize)
            }
        })
    }

    /// Returns at once in the child of a bare clone(2), which has no such thread.
    fn join_thread(&self, thread: usize) {
        let page = PAGE.load(Ordering::Relaxed);
        // SAFETY: the page is never unmapped.
        if !page.is_null() && unsafe { page.read_volatile() } == 0 {
            return;
        }
        keeping_errno(|| {
            without_cancellation(|| {
                // SAFETY: `start_thread` returned the thread, and the caller joins it once.
                unsafe { libc::pthread_join(thread as libc::pthread_t, ptr::null_mut()) };
            });
        });
    }

    fn sleep_ms(&self, ms: u32) {
        futex::sleep_ms(ms);
    }
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
/// A function to call was stored before.
unsafe extern "C" fn leave(round: *mut c_void) {
    let is_last = round.addr() != 1 || !watch_round(2);
    let exit = EXIT.load(Ordering::Relaxed);
    // SAFETY: `watch_threads` stored a function of this type before any thread was watched.
    unsafe { mem::transmute::<*mut c_void, extern "C" fn(bool)>(exit)(is_last) }
}

/// A page that the kernel clears in forked children (MADV_WIPEONFORK). Its first byte is 1 in a
/// process that has started a thread. Null before the first thread, or if no page could be mapped.
static PAGE: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());

/// Notes that this process has a thread to join. Called by one thread at a time.
fn mark_process() {
    let mut page = PAGE.load(Ordering::Relaxed);
    if page.is_null() {
        let (bytes, access) = (page_size(), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: this maps new memory at any free address. Before Linux 4.14 the kernel wipes
        // nothing.
        unsafe {
            let Ok(new) = map(ptr::null_mut(), bytes, access, 0) else { return };
            let _ = advise(new, bytes, libc::MADV_WIPEONFORK);
            page = new.cast();
        }
        PAGE.store(page, Ordering::Relaxed);
    }
    // SAFETY: the page is writable, and never unmapped.
    unsafe { page.write_volatile(1) };
}

/// Signals that the C library uses itself, for example to make all threads change their user. They
/// are the first two or three real-time signals of the kernel.
const RESERVED: RangeInclusive<c_int> = 32..=if cfg!(target_env = "musl") { 34 } else { 33 };

extern "C" fn run(work: *mut c_void) -> *mut c_void {
    // SAFETY: `start_thread` passed a function of this type.
    unsafe { mem::transmute::<*mut c_void, extern "C" fn()>(work)() };
    ptr::null_mut()
}

/// The C library's variable that tells of one thread, if it has it.
fn libc_single_threaded() -> Option<bool> {
    let single = weak!("__libc_single_threaded");
    // SAFETY: the address is the variable's, which may change at any time.
    (!single.is_null()).then(|| unsafe { single.read_volatile() != 0 })
}

#[cfg(all(test, not(any(miri, loom))))]
mod tests {
    use super::super::native::Native;
    use super::*;
    use crate::platform::kernel::syscall::unmap;

    #[test]
    fn there_is_a_cpu() {
        assert!(Native.cpus() >= 1 && affinity_cpus() >= 1);
    }

    #[test]
    fn words_are_looked_at_even_where_they_are_gone() {
        let words = ThreadWords::new();
        words.state.store(3, Ordering::Relaxed);
        assert_eq!([1, 3].map(|state| Native.may_be(&words, state)), [false, true]);
        // Nothing is ever mapped there.
        assert!(!Native.may_be(ptr::without_provenance(16), 0));
    }

    #[test]
    fn words_that_nobody_may_read_are_not_gone() {
        let bytes = 64 << 10;
        // SAFETY: the mapping is new, and only this test knows it.
        unsafe {
            let hidden = map(ptr::null_mut(), bytes, libc::PROT_NONE, 0).unwrap();
            assert!(Native.may_be(hidden.cast(), 0));
            unmap(hidden, bytes);
        }
    }
}
