//! Sanitizers that divide the address space among themselves and the program, or need a malloc of their own.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use core::{mem, ptr};

use super::linux::keeping_errno;
use super::thread_variable::IS_MALLOC;
use super::weak::weak;

/// Whether ThreadSanitizer or MemorySanitizer runs this program: then most addresses are theirs. They may set themselves up
/// later than the engine, and end the program where one of them is taken.
pub(super) fn divides_addresses() -> bool {
    is_thread_sanitizer() || !weak!("__msan_init").is_null()
}

/// As [`super::Os::objection`]. ThreadSanitizer learns from its own malloc that a block is a new one; without it, each block
/// that one thread frees and another one gets is a data race to it.
pub(super) fn objection() -> Option<&'static str> {
    let objects = IS_MALLOC && is_thread_sanitizer() && !WITHDRAWN.load(Ordering::Relaxed);
    objects.then_some(
        "ThreadSanitizer needs a malloc of its own; neither preload ebbmalloc here, nor link it",
    )
}

/// As [`super::Os::withdraw_objection`].
pub(super) fn withdraw_objection() {
    WITHDRAWN.store(true, Ordering::Relaxed);
}

static WITHDRAWN: AtomicBool = AtomicBool::new(false);

/// Has this called when the process exits normally: atexit(3). AddressSanitizer, which asks for memory while it sets itself up,
/// allows that only afterwards.
pub(super) fn at_exit(call: extern "C" fn()) {
    AT_EXIT.store(call as *mut c_void, Ordering::Release);
    if weak!("__asan_init").is_null() || ARE_CONSTRUCTED.load(Ordering::Acquire) {
        register_exit();
    }
}

/// The program's libraries are set up, sanitizers among them.
pub(super) fn constructors_run() {
    ARE_CONSTRUCTED.store(true, Ordering::Release);
    register_exit();
}

/// Does so once.
fn register_exit() {
    let call = AT_EXIT.swap(ptr::null_mut(), Ordering::AcqRel);
    if !call.is_null() {
        // SAFETY: `at_exit` stored a function of this type, which lives as long as the program.
        keeping_errno(|| unsafe {
            libc::atexit(mem::transmute::<*mut c_void, extern "C" fn()>(call))
        });
    }
}

/// What is to be called at exit and is not registered yet.
static AT_EXIT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static ARE_CONSTRUCTED: AtomicBool = AtomicBool::new(false);

fn is_thread_sanitizer() -> bool {
    !weak!("__tsan_init").is_null()
}
