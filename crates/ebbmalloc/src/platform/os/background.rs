//! A thread of the engine's own, and what it needs to work behind the back of a program.

use core::ffi::{c_int, c_void};
use core::mem::{self, MaybeUninit};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::interface::Bell;
use super::threads;
use crate::platform::kernel::syscall::{advise, call, map};
use crate::platform::kernel::weak::weak;
use crate::platform::kernel::{auxiliary::page_size, errno::keeping_errno};

/// The least stack of the thread, in bytes. It needs a page or two; but handlers of the program's may run on it.
const STACK_MIN_BYTES: usize = 256 << 10;

/// Signals that an instruction of a thread raises in this thread, and none other can take. SIGABRT is none of them:
/// abort(3) unblocks it.
const OWN_SIGNALS: [c_int; 6] =
    [libc::SIGSYS, libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];

/// Starts a thread that runs `work`. A handle of it for [`join`]; none where there can be none.
///
/// Only by calls that any pthread_create makes: a program may have forbidden the others, on pain of death. So the thread has
/// the name, the CPUs and the priority of the caller.
pub(super) fn start(work: extern "C" fn()) -> Option<usize> {
    mark_process();
    keeping_errno(|| {
        let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        let mut stack_bytes = 0;
        let argument = work as *mut c_void;
        // SAFETY: each call fills or reads what it is given, all of which live as long; `thread` is filled where
        // pthread_create says 0.
        unsafe {
            if libc::pthread_attr_init(attributes.as_mut_ptr()) != 0 {
                return None;
            }
            libc::pthread_attr_getstacksize(attributes.as_ptr(), &mut stack_bytes);
            if stack_bytes < STACK_MIN_BYTES {
                libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK_MIN_BYTES);
            }
            let result = with_own_signals(|| {
                libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), run, argument)
            });
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            (result == 0).then(|| thread.assume_init() as usize)
        }
    })
}

/// Waits until a thread of [`start`]'s has ended. The child of a bare clone(2) has no such thread,
/// and does not wait.
pub(super) fn join(thread: usize) {
    let page = PAGE.load(Ordering::Relaxed);
    // SAFETY: the page is never unmapped.
    if !page.is_null() && unsafe { page.read_volatile() } == 0 {
        return;
    }
    keeping_errno(|| {
        without_cancellation(|| {
            // SAFETY: a thread that was started above, and that nobody else waits for.
            unsafe { libc::pthread_join(thread as libc::pthread_t, ptr::null_mut()) };
        });
    });
}

/// A page that the kernel clears in children (MADV_WIPEONFORK). Its first byte is 1 in a process
/// that has started a thread. Null before, or where no page can be had.
static PAGE: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());

/// Notes that this process has a thread to join. One thread at a time.
fn mark_process() {
    let mut page = PAGE.load(Ordering::Relaxed);
    if page.is_null() {
        let (bytes, access) = (page_size(), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: new memory, at any address. Before Linux 4.14 the kernel wipes nothing.
        unsafe {
            let Ok(new) = map(ptr::null_mut(), bytes, access, 0) else { return };
            let _ = advise(new, bytes, libc::MADV_WIPEONFORK);
            page = new.cast();
        }
        PAGE.store(page, Ordering::Relaxed);
    }
    // SAFETY: never unmapped.
    unsafe { page.write_volatile(1) };
}

/// Calls a function that is a cancellation point, as malloc must be none (pthread_setcancelstate(3)).
fn without_cancellation(call: impl FnOnce()) {
    const DISABLE: c_int = 1;
    unsafe extern "C" {
        fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    }
    let (mut before, mut none) = (0, 0);
    // SAFETY: fills what it is given; nothing is left undone in between.
    unsafe {
        pthread_setcancelstate(DISABLE, &mut before);
        call();
        pthread_setcancelstate(before, &mut none);
    }
}

/// Runs `work` while no signal interrupts the calling thread but its own. What it starts inherits that.
fn with_own_signals<R>(work: impl FnOnce() -> R) -> R {
    let own = OWN_SIGNALS.iter().fold(0, |set, &signal| set | 1 << (signal - 1));
    let before = mask(!(own | RESERVED));
    let result = work();
    mask(before);
    result
}

/// Signals that the C library has for itself, and by which it makes all threads change their user, for example:
/// the first two or three of the kernel's real-time signals. Signal n is bit n - 1.
const RESERVED: u64 = if cfg!(target_env = "musl") { 0b111 << 31 } else { 0b11 << 31 };

/// Has these signals wait in the calling thread, and no others; which did before.
fn mask(signals: u64) -> u64 {
    let mut before = 0_u64;
    let (new, old, bytes) = (&raw const signals, &raw mut before, size_of::<u64>());
    // SAFETY: the kernel reads one set and fills the other.
    let _ = unsafe { call!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, new, old, bytes) };
    before
}

extern "C" fn run(work: *mut c_void) -> *mut c_void {
    // SAFETY: `start` was given a function of this type.
    unsafe { mem::transmute::<*mut c_void, extern "C" fn()>(work)() };
    ptr::null_mut()
}

/// Waits so long, or until the bell rings.
pub(super) fn doze_ms(bell: &Bell, ms: u32) {
    let time = libc::timespec { tv_sec: (ms / 1000) as _, tv_nsec: (ms % 1000 * 1_000_000) as _ };
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: reads the time; the bell outlives the call.
    let _ = unsafe { call!(libc::SYS_futex, bell.as_ptr(), operation, 0, &raw const time) };
}

pub(super) fn ring(bell: &Bell) {
    bell.store(1, Ordering::Release);
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: waking reads nothing through the address.
    let _ = unsafe { call!(libc::SYS_futex, bell.as_ptr(), operation, 1) };
}

/// Whether the calling thread is the first of the process.
pub(super) fn is_first() -> bool {
    is_single() || !not_first()
}

/// True only if the process has one thread for certain: glibc never says so where it is not.
pub(super) fn is_single() -> bool {
    told_single() == Some(true)
}

/// What the C library says, if it does.
fn told_single() -> Option<bool> {
    let single = weak!("__libc_single_threaded");
    // SAFETY: the C library's variable, which may change at any time.
    (!single.is_null()).then(|| unsafe { single.read_volatile() != 0 })
}

/// Set-up asks first in most programs. Later each thread asks for its own number, once.
fn not_first() -> bool {
    /// The number of the process, and so of its first thread; 0 before it is known.
    static PROCESS: AtomicU32 = AtomicU32::new(0);
    let mut process = PROCESS.load(Ordering::Relaxed);
    if process == 0 {
        // SAFETY: asks for a number.
        process = unsafe { call!(libc::SYS_getpid) }.map_or(0, |number| number as u32);
        PROCESS.store(process, Ordering::Relaxed);
    }
    threads::number() != process
}
