//! Calls a watcher on accesses that fault (SIGSEGV), before the signal's previous action takes
//! place.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::{self, MaybeUninit};
use core::ptr;

use super::end::{raise, reset};
use crate::platform::arch::instruction;
use crate::platform::errno::keeping_errno;
use crate::platform::sync::{AtomicPtr, Ordering};

/// A function that takes the addresses of the access and of the instruction.
type Watcher = extern "C" fn(usize, usize);

/// The watcher; null before there is one.
static WATCHER: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// The action of SIGSEGV before there was a watcher.
struct Previous(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: `watch` writes it once, before it installs the handler that reads it.
unsafe impl Sync for Previous {}

static PREVIOUS: Previous = Previous(UnsafeCell::new(MaybeUninit::zeroed()));

/// Calls `watcher` on each SIGSEGV that an access raises. Called once in a process. The handler
/// runs on the thread's alternate stack, if it has one.
pub(super) fn watch(watcher: Watcher) {
    let watcher = (watcher as *const c_void).cast_mut();
    if !WATCHER.swap(watcher, Ordering::AcqRel).is_null() {
        return;
    }
    // SAFETY: all-zero bytes are a valid action, with an empty mask. Only the first call comes
    // here, and PREVIOUS is not read before the handler is installed.
    keeping_errno(|| unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = on_fault as *const c_void as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        if libc::sigaction(libc::SIGSEGV, ptr::null(), (*PREVIOUS.0.get()).as_mut_ptr()) == 0 {
            libc::sigaction(libc::SIGSEGV, &action, ptr::null_mut());
        }
    });
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes valid pointers. The watcher is the function that `watch` stored.
    keeping_errno(|| unsafe {
        let by_access = (*info).si_code > 0;
        let watcher = WATCHER.load(Ordering::Acquire);
        if by_access && !watcher.is_null() {
            let watcher = mem::transmute::<*mut c_void, Watcher>(watcher);
            watcher((*info).si_addr().addr(), instruction(context));
        }
        run_previous(signal, info, context);
    });
}

/// Runs the previous action of the signal.
///
/// # Safety
/// The kernel passed the arguments to a handler of this signal.
unsafe fn run_previous(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    type Plain = extern "C" fn(c_int);
    type Informed = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
    // SAFETY: PREVIOUS was written before this handler was installed. Its flags tell the type of
    // its handler.
    unsafe {
        let previous = (*PREVIOUS.0.get()).assume_init_ref();
        let by_access = (*info).si_code > 0;
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
