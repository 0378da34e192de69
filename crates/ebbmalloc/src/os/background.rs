//! A thread of the engine's own, and what it needs to work behind the back of a program.

use core::ffi::{c_int, c_void};
use core::mem::{self, MaybeUninit};
use core::ptr;
use core::sync::atomic::Ordering;

use super::Bell;
use super::linux::keeping_errno;
use super::weak::weak;

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

/// Waits until a thread of [`start`]'s has ended.
pub(super) fn join(thread: usize) {
    // SAFETY: a thread that was started above, and that nobody else waits for.
    keeping_errno(|| unsafe { libc::pthread_join(thread as libc::pthread_t, ptr::null_mut()) });
}

/// Runs `work` while no signal interrupts the calling thread but its own. What it starts inherits that.
fn with_own_signals<R>(work: impl FnOnce() -> R) -> R {
    let (mut others, mut before) =
        (MaybeUninit::<libc::sigset_t>::uninit(), MaybeUninit::<libc::sigset_t>::uninit());
    // SAFETY: each call fills or reads what it is given; the mask is that of this thread, and put back.
    unsafe {
        libc::sigfillset(others.as_mut_ptr());
        for signal in OWN_SIGNALS {
            libc::sigdelset(others.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, others.as_ptr(), before.as_mut_ptr());
        let result = work();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        result
    }
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
    keeping_errno(|| unsafe {
        libc::syscall(libc::SYS_futex, bell.as_ptr(), operation, 0, &raw const time)
    });
}

pub(super) fn ring(bell: &Bell) {
    bell.store(1, Ordering::Release);
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: waking reads nothing through the address.
    keeping_errno(|| unsafe { libc::syscall(libc::SYS_futex, bell.as_ptr(), operation, 1) });
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

fn not_first() -> bool {
    // SAFETY: both ask for a number.
    unsafe { libc::syscall(libc::SYS_gettid) != libc::c_long::from(libc::getpid()) }
}
