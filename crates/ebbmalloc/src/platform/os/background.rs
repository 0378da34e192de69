//! Starts and stops a thread of the engine's own, hidden from the program.

use core::ffi::{c_int, c_void};
use core::mem::{self, MaybeUninit};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::interface::Bell;
use super::threads;
use crate::platform::kernel::auxiliary::page_size;
use crate::platform::kernel::errno::keeping_errno;
use crate::platform::kernel::futex::futex_wake;
use crate::platform::kernel::syscall::{advise, call, change_mask, map};
use crate::platform::kernel::weak::weak;

/// The smallest stack of the thread. The engine uses a page or two, but the program's signal
/// handlers may run on it too.
const STACK_MIN_BYTES: usize = 256 << 10;

/// Signals that an instruction raises in its own thread, which alone can take them. SIGABRT need
/// not be among them, as abort(3) unblocks it.
const OWN_SIGNALS: [c_int; 6] =
    [libc::SIGSYS, libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];

/// Starts a thread that runs `work`. Returns its handle for [`join`], or `None` if it cannot be
/// started.
///
/// Makes only the system calls that any pthread_create makes: a filter of the program's may kill
/// for others. So the thread inherits name, CPUs and priority from the caller.
pub(super) fn start(work: extern "C" fn()) -> Option<usize> {
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

/// Waits until a thread of [`start`] has ended. Returns at once in the child of a bare clone(2),
/// which has no such thread.
pub(super) fn join(thread: usize) {
    let page = PAGE.load(Ordering::Relaxed);
    // SAFETY: the page is never unmapped.
    if !page.is_null() && unsafe { page.read_volatile() } == 0 {
        return;
    }
    keeping_errno(|| {
        without_cancellation(|| {
            // SAFETY: `start` returned the thread, and the caller joins it once.
            unsafe { libc::pthread_join(thread as libc::pthread_t, ptr::null_mut()) };
        });
    });
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

/// Calls a function that is a cancellation point with cancellation disabled
/// (pthread_setcancelstate(3)): malloc must not be a cancellation point.
fn without_cancellation(call: impl FnOnce()) {
    const DISABLE: c_int = 1;
    unsafe extern "C" {
        fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    }
    let (mut before, mut none) = (0, 0);
    // SAFETY: both calls fill the variable that they are given.
    unsafe {
        pthread_setcancelstate(DISABLE, &mut before);
        call();
        pthread_setcancelstate(before, &mut none);
    }
}

/// Runs `work` while the calling thread blocks all signals but [`OWN_SIGNALS`] and [`RESERVED`]. A
/// thread that `work` starts inherits the mask.
fn with_own_signals<R>(work: impl FnOnce() -> R) -> R {
    let own = OWN_SIGNALS.iter().fold(0, |set, &signal| set | 1 << (signal - 1));
    let before = change_mask(libc::SIG_SETMASK, !(own | RESERVED));
    let result = work();
    change_mask(libc::SIG_SETMASK, before);
    result
}

/// Signals that the C library uses itself, for example to make all threads change their user. They
/// are the first two or three real-time signals of the kernel. Signal n is bit n - 1.
const RESERVED: u64 = if cfg!(target_env = "musl") { 0b111 << 31 } else { 0b11 << 31 };

extern "C" fn run(work: *mut c_void) -> *mut c_void {
    // SAFETY: `start` passed a function of this type.
    unsafe { mem::transmute::<*mut c_void, extern "C" fn()>(work)() };
    ptr::null_mut()
}

/// Implements [`super::interface::OsThreads::ring`].
pub(super) fn ring(bell: &Bell) {
    bell.store(1, Ordering::Release);
    futex_wake(bell);
}

/// Whether the calling thread is the first of the process.
pub(super) fn is_first() -> bool {
    is_single() || !not_first()
}

/// Whether the process certainly has one thread only. glibc's variable is never true if there are
/// more.
pub(super) fn is_single() -> bool {
    libc_single_threaded() == Some(true)
}

/// Implements [`super::interface::OsThreads::had_threads`].
pub(super) fn had_threads() -> bool {
    libc_single_threaded() == Some(false)
}

/// The C library's variable that tells of one thread, if it has it.
fn libc_single_threaded() -> Option<bool> {
    let single = weak!("__libc_single_threaded");
    // SAFETY: the address is the variable's, which may change at any time.
    (!single.is_null()).then(|| unsafe { single.read_volatile() != 0 })
}

/// Whether the calling thread is not the first. Makes a system call only the first time in a
/// process and in each thread; in most programs set-up is the first to call.
fn not_first() -> bool {
    /// The number of the process, which is that of its first thread; 0 before it is known.
    static PROCESS: AtomicU32 = AtomicU32::new(0);
    let mut process = PROCESS.load(Ordering::Relaxed);
    if process == 0 {
        // SAFETY: the call touches no memory.
        process = unsafe { call!(libc::SYS_getpid) }.map_or(0, |number| number as u32);
        PROCESS.store(process, Ordering::Relaxed);
    }
    threads::number() != process
}
