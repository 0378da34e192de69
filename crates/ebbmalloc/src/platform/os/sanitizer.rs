//! Detects sanitizers, which reserve parts of the address space and bring a malloc of their own.

use core::sync::atomic::{AtomicBool, Ordering};

use super::thread_variable::IS_MALLOC;
use crate::platform::kernel::weak::weak;

/// Whether ThreadSanitizer or MemorySanitizer runs this program. They reserve most addresses, and
/// end the program if one of those is taken when they set themselves up, which may be after the
/// engine.
pub(super) fn divides_addresses() -> bool {
    !weak!("__tsan_init").is_null() || !weak!("__msan_init").is_null()
}

/// Implements [`super::interface::OsProcess::objection`].
///
/// With another malloc than its own, each of these sanitizers fails. AddressSanitizer's `strdup`
/// and others return blocks that `free` does not know. ThreadSanitizer reports a data race if a
/// thread gets a block that another one freed. MemorySanitizer calls functions that it has not
/// found yet.
pub(super) fn objection() -> Option<&'static str> {
    if !IS_MALLOC || IS_WITHDRAWN.load(Ordering::Relaxed) {
        return None;
    }
    let sanitizers = [
        ("AddressSanitizer", weak!("__asan_init")),
        ("ThreadSanitizer", weak!("__tsan_init")),
        ("MemorySanitizer", weak!("__msan_init")),
    ];
    sanitizers.into_iter().find(|(_, init)| !init.is_null()).map(|(name, _)| name)
}

/// Implements [`super::interface::OsProcess::withdraw_objection`].
pub(super) fn withdraw_objection() {
    IS_WITHDRAWN.store(true, Ordering::Relaxed);
}

static IS_WITHDRAWN: AtomicBool = AtomicBool::new(false);
