//! Defines the functions that call the new-handler and throw, as C++'s `operator new` does.

use core::ffi::c_void;

type Block = *mut c_void;

// `operator new` and its aligned form of the engine beside the shim, which a program cannot
// replace by one that calls `mi_new`.
unsafe extern "C-unwind" {
    #[link_name = "ebb_own_Znwm"]
    fn own_new(size: usize) -> Block;
    #[link_name = "ebb_own_ZnwmSt11align_val_t"]
    fn own_new_aligned(size: usize, align: usize) -> Block;
}

/// Ends the program where the engine beside the shim does not serve: its operators would return
/// blocks that the other engine does not know.
fn check() {
    if !shim::is_beside() {
        shim::fail("no memory for mi_new, and libebbmalloc.so was loaded before");
    }
}

/// The block; for null, has `operator new` try again or throw. A macro, since exceptions may not
/// pass functions of Rust's own kind.
macro_rules! or_throw {
    ($block:expr, $size:expr, $align:expr) => {{
        let block: Block = $block;
        if block.is_null() {
            check();
            match $align <= shim::MIN_ALIGN {
                true => own_new($size),
                false => own_new_aligned($size, $align),
            }
        } else {
            block
        }
    }};
}

/// The block; for null, has `operator new` find memory of this size, and tries once more. If there
/// is memory, but not for this block, no size would help, so only the new-handler is asked then.
macro_rules! until_it_throws {
    ($block:expr, $size:expr) => {{
        let mut asked: usize = $size;
        loop {
            let block: Block = $block;
            if !block.is_null() {
                return block;
            }
            shim::ebb_free(or_throw!(core::ptr::null_mut(), asked, 1));
            asked = usize::MAX;
        }
    }};
}

macro_rules! export_throwing {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),*) $body:block)+) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> Block $body
    )+};
}

// SAFETY of all calls below: the caller owns the blocks that it passes, and lets exceptions pass.

export_throwing! {
    fn mi_new(size: usize) {
        unsafe { or_throw!(shim::ebb_malloc(size), size, 1) }
    }

    fn mi_new_aligned(size: usize, align: usize) {
        let align = align.checked_next_power_of_two().unwrap_or(1 << (usize::BITS - 1));
        unsafe { or_throw!(shim::alloc(align, size, false), size, align) }
    }

    fn mi_new_n(count: usize, size: usize) {
        unsafe { mi_new(count.saturating_mul(size)) }
    }

    fn mi_new_realloc(block: Block, size: usize) {
        unsafe { mi_new_reallocn(block, 1, size) }
    }

    fn mi_new_reallocn(block: Block, count: usize, size: usize) {
        let bytes = count.saturating_mul(size);
        unsafe { until_it_throws!(shim::realloc(block, 1, bytes), bytes) }
    }

    fn mi_heap_alloc_new(heap: *mut shim::Heap, size: usize) {
        unsafe { until_it_throws!(crate::heaps::alloc(heap, size, 1, false), size) }
    }

    fn mi_heap_alloc_new_n(heap: *mut shim::Heap, count: usize, size: usize) {
        unsafe { mi_heap_alloc_new(heap, count.saturating_mul(size)) }
    }
}
