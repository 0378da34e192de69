//! Defines the functions of mimalloc's own interface on ebbmalloc.
//!
//! The header is `include/mimalloc.h`. It lacks the functions that ebbmalloc cannot serve
//! truthfully: those about arenas, pages, and the default heap of a thread.

#![no_std]
// The callers are C programs, and the contracts are those of mimalloc.
#![allow(clippy::missing_safety_doc)]

mod heaps;
mod options;
mod report;
mod throwing;
mod zeroing;

use core::ffi::{c_char, c_int, c_void};
use core::ptr;

use zeroing::grown;

type Block = *mut c_void;

/// Defines functions in terms of others.
macro_rules! export {
    ($($(#[$meta:meta])* fn $($name:ident)|+ = $args:tt -> $ret:ty $body:block)+) => {$(
        $crate::export!(@each [$($name)+] [$(#[$meta])*] $args $ret $body);
    )+};
    (@each [] $meta:tt $args:tt $ret:ty $body:block) => {};
    (@each [$name:ident $($more:ident)*] [$($meta:tt)*] ($($args:tt)*) $ret:ty $body:block) => {
        $($meta)*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($args)*) -> $ret $body
        $crate::export!(@each [$($more)*] [$($meta)*] ($($args)*) $ret $body);
    };
}
pub(crate) use export;

/// Sets `errno` and returns null.
fn refuse(errno: c_int) -> Block {
    // SAFETY: the address of this thread's errno is valid.
    unsafe { *libc::__errno_location() = errno }
    ptr::null_mut()
}

/// Allocates at a multiple of `align`. Null for an alignment that is no power of two, or for an
/// offset at which no block of ours can be aligned.
fn aligned(size: usize, align: usize, offset: usize, zeroed: bool) -> Block {
    if !align.is_power_of_two() || !offset.is_multiple_of(align) {
        return refuse(libc::EINVAL);
    }
    shim::alloc(align, size, zeroed)
}

/// Runs `work` on a product, unless it does not fit.
fn product(count: usize, size: usize, work: impl FnOnce(usize) -> Block) -> Block {
    match count.checked_mul(size) {
        Some(bytes) => work(bytes),
        None => refuse(libc::ENOMEM),
    }
}

/// Resizes a block, which is then aligned.
unsafe fn realloc_aligned(block: Block, size: usize, align: usize, offset: usize) -> Block {
    if !align.is_power_of_two() || !offset.is_multiple_of(align) {
        return refuse(libc::EINVAL);
    }
    // SAFETY: the caller owns the block.
    unsafe { shim::realloc(block, align, size) }
}

/// Stores the usable size of a block, if it is wanted.
unsafe fn tell(out: *mut usize, block: Block) -> Block {
    if !out.is_null() {
        // SAFETY: the caller's pointer is valid for writes, and the block is in use, or null.
        unsafe { out.write(shim::ebb_malloc_usable_size(block)) }
    }
    block
}

// SAFETY of all calls below: the caller fulfils the contract of mimalloc's function, which is that
// of ebbmalloc's.

export! {
    fn mi_malloc | mi_malloc_small | mi_new_nothrow = (size: usize) -> Block {
        unsafe { shim::ebb_malloc(size) }
    }

    fn mi_zalloc | mi_zalloc_small = (size: usize) -> Block {
        unsafe { shim::ebb_calloc(1, size) }
    }

    fn mi_calloc = (count: usize, size: usize) -> Block {
        unsafe { shim::ebb_calloc(count, size) }
    }

    fn mi_mallocn = (count: usize, size: usize) -> Block {
        product(count, size, |bytes| unsafe { shim::ebb_malloc(bytes) })
    }

    /// Resizes a block. Size 0 does not free it.
    fn mi_realloc = (block: Block, size: usize) -> Block {
        unsafe { shim::realloc(block, 1, size) }
    }

    fn mi_reallocn | mi_reallocarray = (block: Block, count: usize, size: usize) -> Block {
        product(count, size, |bytes| unsafe { shim::realloc(block, 1, bytes) })
    }

    /// Resizes a block, or frees it if that fails.
    fn mi_reallocf = (block: Block, size: usize) -> Block {
        unsafe {
            let new = shim::realloc(block, 1, size);
            if new.is_null() {
                shim::ebb_free(block);
            }
            new
        }
    }

    /// Resizes the block at `*place`. Returns an error number.
    fn mi_reallocarr = (place: *mut c_void, count: usize, size: usize) -> c_int {
        let place = place.cast::<Block>();
        if place.is_null() {
            return libc::EINVAL;
        }
        let Some(bytes) = count.checked_mul(size) else { return libc::EOVERFLOW };
        unsafe {
            let new = shim::realloc(place.read(), 1, bytes);
            if new.is_null() {
                return libc::ENOMEM;
            }
            place.write(new);
        }
        0
    }

    /// Resizes a block in place, or returns null.
    fn mi_expand | mi__expand = (block: Block, size: usize) -> Block {
        unsafe {
            let fits = !block.is_null()
                && (size <= shim::ebb_malloc_usable_size(block)
                    || shim::ebb_resize(block, 1, size));
            if fits { block } else { ptr::null_mut() }
        }
    }

    fn mi_free | mi_free_small | mi_cfree = (block: Block) -> () {
        unsafe { shim::ebb_free(block) }
    }

    /// Frees a block. Its size may be any up to the usable one, so it is not used.
    fn mi_free_size = (block: Block, _size: usize) -> () {
        unsafe { shim::ebb_free(block) }
    }

    fn mi_free_size_aligned = (block: Block, _size: usize, _align: usize) -> () {
        unsafe { shim::ebb_free(block) }
    }

    fn mi_free_aligned = (block: Block, _align: usize) -> () {
        unsafe { shim::ebb_free(block) }
    }

    fn mi_usable_size | mi_malloc_size | mi_malloc_usable_size = (block: *const c_void) -> usize {
        unsafe { shim::ebb_malloc_usable_size(block.cast_mut()) }
    }

    /// The usable size that a block of this size will have.
    fn mi_good_size | mi_malloc_good_size = (size: usize) -> usize {
        shim::usable_for(1, size)
    }

    fn mi_malloc_aligned | mi_new_aligned_nothrow = (size: usize, align: usize) -> Block {
        aligned(size, align, 0, false)
    }

    fn mi_malloc_aligned_at = (size: usize, align: usize, offset: usize) -> Block {
        aligned(size, align, offset, false)
    }

    fn mi_zalloc_aligned = (size: usize, align: usize) -> Block {
        aligned(size, align, 0, true)
    }

    fn mi_zalloc_aligned_at = (size: usize, align: usize, offset: usize) -> Block {
        aligned(size, align, offset, true)
    }

    fn mi_calloc_aligned = (count: usize, size: usize, align: usize) -> Block {
        product(count, size, |bytes| aligned(bytes, align, 0, true))
    }

    fn mi_calloc_aligned_at = (
        count: usize, size: usize, align: usize, offset: usize
    ) -> Block {
        product(count, size, |bytes| aligned(bytes, align, offset, true))
    }

    fn mi_realloc_aligned = (block: Block, size: usize, align: usize) -> Block {
        unsafe { realloc_aligned(block, size, align, 0) }
    }

    fn mi_realloc_aligned_at = (
        block: Block, size: usize, align: usize, offset: usize
    ) -> Block {
        unsafe { realloc_aligned(block, size, align, offset) }
    }

    fn mi_rezalloc = (block: Block, size: usize) -> Block {
        unsafe { grown(block, || shim::realloc(block, 1, size)) }
    }

    fn mi_recalloc = (block: Block, count: usize, size: usize) -> Block {
        product(count, size, |bytes| unsafe { grown(block, || shim::realloc(block, 1, bytes)) })
    }

    fn mi_rezalloc_aligned = (block: Block, size: usize, align: usize) -> Block {
        unsafe { grown(block, || realloc_aligned(block, size, align, 0)) }
    }

    fn mi_rezalloc_aligned_at = (
        block: Block, size: usize, align: usize, offset: usize
    ) -> Block {
        unsafe { grown(block, || realloc_aligned(block, size, align, offset)) }
    }

    fn mi_recalloc_aligned | mi_aligned_recalloc = (
        block: Block, count: usize, size: usize, align: usize
    ) -> Block {
        product(count, size, |bytes| unsafe {
            grown(block, || realloc_aligned(block, bytes, align, 0))
        })
    }

    fn mi_recalloc_aligned_at | mi_aligned_offset_recalloc = (
        block: Block, count: usize, size: usize, align: usize, offset: usize
    ) -> Block {
        product(count, size, |bytes| unsafe {
            grown(block, || realloc_aligned(block, bytes, align, offset))
        })
    }

    fn mi_umalloc | mi_umalloc_small = (size: usize, usable: *mut usize) -> Block {
        unsafe { tell(usable, shim::ebb_malloc(size)) }
    }

    fn mi_uzalloc_small = (size: usize, usable: *mut usize) -> Block {
        unsafe { tell(usable, shim::ebb_calloc(1, size)) }
    }

    fn mi_ucalloc = (count: usize, size: usize, usable: *mut usize) -> Block {
        unsafe { tell(usable, shim::ebb_calloc(count, size)) }
    }

    fn mi_umalloc_aligned = (size: usize, align: usize, usable: *mut usize) -> Block {
        unsafe { tell(usable, aligned(size, align, 0, false)) }
    }

    fn mi_uzalloc_aligned = (size: usize, align: usize, usable: *mut usize) -> Block {
        unsafe { tell(usable, aligned(size, align, 0, true)) }
    }

    fn mi_urealloc = (
        block: Block, size: usize, before: *mut usize, after: *mut usize
    ) -> Block {
        unsafe {
            tell(before, block);
            tell(after, shim::realloc(block, 1, size))
        }
    }

    fn mi_ufree = (block: Block, usable: *mut usize) -> () {
        unsafe { shim::ebb_free(tell(usable, block)) }
    }

    fn mi_posix_memalign = (out: *mut Block, align: usize, size: usize) -> c_int {
        if out.is_null() {
            return libc::EINVAL;
        }
        unsafe { shim::ebb_posix_memalign(out, align, size) }
    }

    fn mi_memalign = (align: usize, size: usize) -> Block {
        aligned(size, align, 0, false)
    }

    fn mi_aligned_alloc = (align: usize, size: usize) -> Block {
        aligned(size, align, 0, false)
    }

    fn mi_valloc = (size: usize) -> Block {
        unsafe { shim::ebb_valloc(size) }
    }

    fn mi_pvalloc = (size: usize) -> Block {
        unsafe { shim::ebb_pvalloc(size) }
    }

    fn mi_strdup | mi_mbsdup = (text: *const c_char) -> *mut c_char {
        unsafe { heaps::duplicate(ptr::null_mut(), text, usize::MAX) }
    }

    fn mi_strndup = (text: *const c_char, most: usize) -> *mut c_char {
        unsafe { heaps::duplicate(ptr::null_mut(), text, most) }
    }

    /// `realpath`; the C library allocates by the `malloc` of this library.
    fn mi_realpath = (path: *const c_char, resolved: *mut c_char) -> *mut c_char {
        unsafe { libc::realpath(path, resolved) }
    }

    /// Returns all free memory to the kernel; or, without `force`, what was not needed recently.
    fn mi_collect = (force: bool) -> () {
        unsafe {
            match force {
                true => shim::ebb_malloc_trim(0),
                false => shim::ebb_idle(),
            };
        }
    }

    /// The version of the interface.
    fn mi_version = () -> c_int {
        20_302
    }

    /// Does nothing: ebbmalloc sees processes and threads begin and end by itself.
    fn mi_process_init | mi_process_done | mi_thread_init | mi_thread_done
        | mi_thread_set_in_threadpool = () -> () {}
}
