//! Memory for what a report gathers: some threads have 16 KiB of stack, and a report takes 8 KiB.

use crate::platform::os::{Os, choose};

/// Passes a copy of `empty` to `work`: in memory of its own, or on the stack where memory is short.
/// Returns what `work` returns.
#[inline(never)]
pub(super) fn with_room<T: Copy, R>(os: &impl Os, empty: &T, work: impl FnOnce(&mut T) -> R) -> R {
    let bytes = size_of::<T>().next_multiple_of(os.page_size());
    let Some(start) = choose(os, bytes, bytes) else {
        return on_stack(empty, work);
    };
    let place = start.as_ptr().cast::<T>();
    // SAFETY: the memory was just committed for this call, in whole pages, as long as a `T` is.
    // `work` cannot keep the reference.
    unsafe {
        place.copy_from_nonoverlapping(empty, 1);
        let done = work(&mut *place);
        if os.decommit(start.as_ptr(), bytes) {
            os.release(start.as_ptr());
        }
        done
    }
}

#[cold]
#[inline(never)]
fn on_stack<T: Copy, R>(empty: &T, work: impl FnOnce(&mut T) -> R) -> R {
    work(&mut { *empty })
}
