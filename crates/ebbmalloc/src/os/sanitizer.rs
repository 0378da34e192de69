//! Sanitizers that divide the address space among themselves and the program, or need a malloc of their own.

use core::sync::atomic::{AtomicBool, Ordering};

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

fn is_thread_sanitizer() -> bool {
    !weak!("__tsan_init").is_null()
}
