//! Sanitizers: they divide the address space among themselves and the program, and have a malloc of their own.

use core::sync::atomic::{AtomicBool, Ordering};

use super::thread_variable::IS_MALLOC;
use crate::platform::kernel::weak::weak;

/// Whether ThreadSanitizer or MemorySanitizer runs this program: then most addresses are theirs. They may set themselves up
/// later than the engine, and end the program where one of them is taken.
pub(super) fn divides_addresses() -> bool {
    !weak!("__tsan_init").is_null() || !weak!("__msan_init").is_null()
}

/// As [`super::interface::Os::objection`]. With another malloc than its own, AddressSanitizer hands out blocks by functions like `strdup`
/// that `free` does not know, ThreadSanitizer takes it for a data race where a thread gets a block that another one has
/// freed, and MemorySanitizer calls functions that it has not found yet.
pub(super) fn objection() -> Option<&'static str> {
    if !IS_MALLOC || IS_WITHDRAWN.load(Ordering::Relaxed) {
        return None;
    }
    if !weak!("__asan_init").is_null() {
        return Some(
            "AddressSanitizer needs a malloc of its own; neither preload ebbmalloc here, nor link it",
        );
    }
    if !weak!("__tsan_init").is_null() {
        return Some(
            "ThreadSanitizer needs a malloc of its own; neither preload ebbmalloc here, nor link it",
        );
    }
    if !weak!("__msan_init").is_null() {
        return Some(
            "MemorySanitizer needs a malloc of its own; neither preload ebbmalloc here, nor link it",
        );
    }
    None
}

/// As [`super::interface::Os::withdraw_objection`].
pub(super) fn withdraw_objection() {
    IS_WITHDRAWN.store(true, Ordering::Relaxed);
}

static IS_WITHDRAWN: AtomicBool = AtomicBool::new(false);
