//! Accesses that the processor refuses: told to whoever watches, before the signal does what it would have done.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::{self, MaybeUninit};
use core::ptr;

use super::end::{raise, reset};
use crate::platform::kernel::errno::keeping_errno;
use crate::platform::sync::{AtomicPtr, Ordering};

/// Who is told: of the address, and of the instruction.
type Watcher = extern "C" fn(usize, usize);

/// Null before anybody watches.
static WATCHER: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// What was to happen before anybody watched.
struct Previous(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: written before the handler that reads it is installed.
unsafe impl Sync for Previous {}

static PREVIOUS: Previous = Previous(UnsafeCell::new(MaybeUninit::zeroed()));

/// Has `watcher` told of each SIGSEGV that an access raises. Once in a process. The handler runs on the thread's alternate
/// stack, if it has one.
pub(super) fn watch(watcher: Watcher) {
    let watcher = (watcher as *const c_void).cast_mut();
    if !WATCHER.swap(watcher, Ordering::AcqRel).is_null() {
        return;
    }
    // SAFETY: all zero bytes are a valid action, with an empty mask; nobody else has PREVIOUS yet.
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
    // SAFETY: as the kernel passes them; the watcher is what `watch` stored.
    keeping_errno(|| unsafe {
        let by_access = (*info).si_code > 0;
        let watcher = WATCHER.load(Ordering::Acquire);
        if by_access && !watcher.is_null() {
            let watcher = mem::transmute::<*mut c_void, Watcher>(watcher);
            watcher((*info).si_addr().addr(), instruction(context));
        }
        go_on(signal, info, context);
    });
}

/// Does what would have happened without us.
///
/// # Safety
/// The arguments are those of a signal handler.
unsafe fn go_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    type Plain = extern "C" fn(c_int);
    type Informed = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
    // SAFETY: written before this handler was installed; a handler has the type that its flags say.
    unsafe {
        let previous = (*PREVIOUS.0.get()).assume_init_ref();
        let by_access = (*info).si_code > 0;
        match previous.sa_sigaction {
            libc::SIG_IGN if !by_access => {}
            libc::SIG_DFL | libc::SIG_IGN => {
                // The access is tried again as we return, and then ends the process; a signal that
                // somebody sent has to be sent once more.
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

/// Where the processor was, 0 if that is not known.
///
/// # Safety
/// The context is what a signal handler was given.
#[cfg(target_arch = "x86_64")]
unsafe fn instruction(context: *const c_void) -> usize {
    // SAFETY: the caller's.
    unsafe {
        (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] as usize
    }
}

/// As above.
#[cfg(target_arch = "aarch64")]
unsafe fn instruction(context: *const c_void) -> usize {
    // SAFETY: the caller's.
    unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.pc as usize }
}

/// As above.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn instruction(_: *const c_void) -> usize {
    0
}
