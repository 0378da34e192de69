//! A thread of the engine's own, and what it needs to work behind the back of a program.

use core::ffi::c_void;
use core::mem::{self, MaybeUninit};
use core::ptr;

use super::linux::keeping_errno;
use super::syscall::call;
use super::thread_pointer::thread_pointer;
use super::weak::weak;

/// Bytes of address space for the thread's stack, of which it touches a page or two. The C library puts
/// the thread's variables there too; where these are large, the second will do.
const STACKS: [usize; 2] = [256 << 10, 8 << 20];

/// Starts a thread that runs `work` with all signals blocked, and which nobody waits for.
pub(super) fn start(work: extern "C" fn()) -> bool {
    keeping_errno(|| {
        let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        let argument = work as *mut c_void;
        // SAFETY: each call fills or reads what it is given, all of which live as long.
        unsafe {
            if libc::pthread_attr_init(attributes.as_mut_ptr()) != 0 {
                return false;
            }
            libc::pthread_attr_setdetachstate(
                attributes.as_mut_ptr(),
                libc::PTHREAD_CREATE_DETACHED,
            );
            let started = without_signals(|| {
                STACKS.iter().any(|&bytes| {
                    libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), bytes);
                    libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), run, argument)
                        == 0
                })
            });
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            started
        }
    })
}

/// Runs `work` while no signal interrupts the calling thread. What it starts inherits that.
fn without_signals<R>(work: impl FnOnce() -> R) -> R {
    let before = mask(!RESERVED);
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
    // SAFETY: names this thread, by a text that ends with a null byte; and gives it the usual priority, which all
    // zero bytes mean, as whoever started it may have a higher one. By the system call: musl's function refuses.
    unsafe {
        let _ = call!(libc::SYS_prctl, libc::PR_SET_NAME, c"ebb-scavenger".as_ptr());
        let normal: libc::sched_param = mem::zeroed();
        let _ = call!(libc::SYS_sched_setscheduler, 0, libc::SCHED_OTHER, &raw const normal);
    }
    // SAFETY: `start` was given a function of this type.
    unsafe { mem::transmute::<*mut c_void, extern "C" fn()>(work)() };
    ptr::null_mut()
}

/// False while the process has one thread. glibc says so since 2.32, but not in the child of a fork;
/// where nobody does, whoever asks is one of several if it is not the first.
pub(super) fn is_threaded(forked: bool) -> bool {
    match told_single() {
        Some(single) if !forked => !single,
        _ => not_first(),
    }
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
