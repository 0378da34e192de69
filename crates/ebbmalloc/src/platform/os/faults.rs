//! Calls a watcher on accesses that fault (SIGSEGV, on macOS SIGBUS), before the signal's previous
//! action takes place.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::{self, MaybeUninit};
use core::ptr;

use super::end::{raise, reset, without_signals};
use crate::platform::arch::{call_on, instruction};
use crate::platform::errno::keeping_errno;
use crate::platform::sync::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// A function that takes the addresses of the access and of the instruction.
type Watcher = extern "C" fn(usize, usize);

/// The signal of an access to a page without access.
const SIGNAL: c_int = if cfg!(target_os = "macos") { libc::SIGBUS } else { libc::SIGSEGV };

/// The watcher; null before there is one.
static WATCHER: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// An action of the signal that the handler took the place of.
struct Previous(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: `watch` writes each once, before it counts it. The handler reads those that count.
unsafe impl Sync for Previous {}

/// What there was before: first, and when the handler was installed again.
static PREVIOUS: [Previous; 2] = [const { Previous(UnsafeCell::new(MaybeUninit::zeroed())) }; 2];
/// How many of these count.
static INSTALLED: AtomicUsize = AtomicUsize::new(0);
/// Whether a thread is in [`watch`].
static IS_BUSY: AtomicBool = AtomicBool::new(false);

/// Calls `watcher` on each fault that an access raises. The handler runs on the thread's alternate
/// stack, if it has one.
///
/// Installs the handler once more if another has taken its place. Rust's library allocates a
/// program's first block between asking for the action of SIGSEGV and setting its own.
pub(super) fn watch(watcher: Watcher) {
    WATCHER.store((watcher as *const c_void).cast_mut(), Ordering::Release);
    if IS_BUSY.swap(true, Ordering::Acquire) {
        return;
    }
    let installed = INSTALLED.load(Ordering::Relaxed);
    let handler = on_fault as *const c_void as usize;
    // SAFETY: all-zero bytes are a valid action, with an empty mask. One thread at a time comes
    // here, and the handler does not read an entry before it counts.
    keeping_errno(|| unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        let mut before: libc::sigaction = mem::zeroed();
        if let Some(previous) = PREVIOUS.get(installed)
            && libc::sigaction(SIGNAL, ptr::null(), &mut before) == 0
            && before.sa_sigaction != handler
        {
            (*previous.0.get()).write(before);
            INSTALLED.store(installed + 1, Ordering::Release);
            libc::sigaction(SIGNAL, &action, ptr::null_mut());
        }
    });
    IS_BUSY.store(false, Ordering::Release);
}

/// Of the last fault: the low halves of the addresses of the kernel's context, then of the
/// handler's frame. Another handler that calls this one, as the program's previous one, passes the
/// same context from a deeper frame.
static LAST: AtomicUsize = AtomicUsize::new(0);

/// Whether a signal comes from an access, and not from kill(2) or alike: by the numbers of Linux,
/// FreeBSD and macOS.
fn is_by_access(code: c_int) -> bool {
    (1..0x1_0000).contains(&code)
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes valid pointers. The watcher is the function that `watch` stored.
    keeping_errno(|| unsafe {
        let frame = ptr::from_ref(&signal).addr() & 0xffff_ffff;
        let (fault, last) = (context.addr() << 32 | frame, LAST.load(Ordering::Relaxed));
        if fault >> 32 == last >> 32 && fault < last {
            return run_previous(0, signal, info, context);
        }
        LAST.store(fault, Ordering::Relaxed);
        let by_access = is_by_access((*info).si_code);
        let watcher = WATCHER.load(Ordering::Acquire);
        if by_access && !watcher.is_null() {
            let watcher = mem::transmute::<*mut c_void, Watcher>(watcher);
            call(watcher, (*info).si_addr().addr(), instruction(context));
        }
        let last = INSTALLED.load(Ordering::Acquire) - 1;
        run_previous(last, signal, info, context);
    });
}

/// Where the watcher runs. An alternate stack may have room for little more than the kernel's
/// context: Rust's and many others have 8 KiB or as little as the kernel asks for.
#[repr(align(64))]
struct WatcherStack(UnsafeCell<[u8; WatcherStack::BYTES]>);

impl WatcherStack {
    const BYTES: usize = 64 << 10;
}

// SAFETY: one thread uses it at a time, as `IS_TAKEN` says.
unsafe impl Sync for WatcherStack {}

static STACK: WatcherStack = WatcherStack(UnsafeCell::new([0; WatcherStack::BYTES]));
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Calls the watcher on [`STACK`]; on this one while another thread's watcher runs there, and where
/// the processor's file has no way to change stacks. Without signals: the handler of another would
/// begin at the top of the alternate stack again, where this one's frame is.
fn call(watcher: Watcher, address: usize, instruction: usize) {
    if IS_TAKEN.swap(true, Ordering::Acquire) {
        return watcher(address, instruction);
    }
    // SAFETY: this thread has taken the stack.
    unsafe {
        let top = STACK.0.get().cast::<u8>().add(WatcherStack::BYTES);
        without_signals([], || call_on(top, watcher, address, instruction));
    }
    IS_TAKEN.store(false, Ordering::Release);
}

/// Runs this one of the previous actions of the signal.
///
/// # Safety
/// The kernel passed the arguments behind the first to a handler of this signal. The action counts.
unsafe fn run_previous(
    nth: usize,
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    type Plain = extern "C" fn(c_int);
    type Informed = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
    // SAFETY: an action that counts was written. Its flags tell the type of its handler.
    unsafe {
        let previous = (*PREVIOUS[nth].0.get()).assume_init_ref();
        let by_access = is_by_access((*info).si_code);
        if previous.sa_flags & libc::SA_RESETHAND != 0 {
            reset(signal);
        }
        match previous.sa_sigaction {
            libc::SIG_IGN if !by_access => {}
            libc::SIG_DFL | libc::SIG_IGN => {
                // An access is repeated on return, and then ends the process. A signal that was
                // sent by kill(2) or alike must be sent again.
                reset(signal);
                if !by_access {
                    raise(signal);
                }
            }
            handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
                mem::transmute::<usize, Informed>(handler)(signal, info, context)
            }
            handler => mem::transmute::<usize, Plain>(handler)(signal),
        }
    }
}
