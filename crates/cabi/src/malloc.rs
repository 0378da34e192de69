//! Defines malloc(3) and its relatives: POSIX.1-2024, C23, and glibc's extensions.
//!
//! If these disagree, glibc decides: `realloc(p, 0)` frees and returns null. `memalign` rounds an
//! alignment up to a power of two, and `aligned_alloc` refuses it. `free` keeps `errno`.

use core::ffi::{c_int, c_void};
use core::ptr;

use engine::internals::{ENGINE, MIN_ALIGN, OsMemory};

use crate::{export, set_errno};

/// Refers to all functions by which the C library allocates or frees at run time, so that a linker
/// keeps all of them.
///
/// A linker may drop functions that no code of the program calls; Zig's drops those that only
/// shared libraries call. With some dropped, blocks of the C library's own functions would be freed
/// here.
pub(crate) fn keep_together() {
    core::hint::black_box([
        malloc as *const (),
        free as *const (),
        calloc as *const (),
        realloc as *const (),
        reallocarray as *const (),
        aligned_alloc as *const (),
        posix_memalign as *const (),
        memalign as *const (),
        valloc as *const (),
        pvalloc as *const (),
        malloc_usable_size as *const (),
    ]);
}

/// Sets `errno`, and returns null.
pub(crate) fn refuse(errno: c_int) -> *mut c_void {
    set_errno(errno);
    ptr::null_mut()
}

/// `realloc`.
///
/// # Safety
/// The block is null, or the caller owns it and does not use its old address again if it moves.
#[inline(always)]
unsafe fn resize(block: *mut c_void, size: usize) -> *mut c_void {
    if block.is_null() {
        return ENGINE.alloc(size).cast();
    }
    // SAFETY: the caller owns the block, and does not use its old address again.
    unsafe {
        if size == 0 {
            ENGINE.free(block.cast());
            return ptr::null_mut();
        }
        ENGINE.realloc(block.cast(), size, MIN_ALIGN).cast()
    }
}

export! {
    /// Allocates a block of `size` bytes. Size 0 returns a unique block, too.
    fn malloc/ebb_malloc(size: usize) -> *mut c_void {
        ENGINE.alloc(size).cast()
    }

    /// Frees a block. Does nothing for null. Keeps `errno`.
    fn free/ebb_free(block: *mut c_void) {
        // SAFETY: the caller owns the block, and does not use it again.
        unsafe { ENGINE.free(block.cast()) }
    }

    /// Allocates `count` times `size` zero bytes. Bytes beyond, up to `malloc_usable_size`, are
    /// zero, too.
    fn calloc/ebb_calloc(count: usize, size: usize) -> *mut c_void {
        match count.checked_mul(size) {
            Some(bytes) => ENGINE.alloc_zeroed(bytes).cast(),
            None => refuse(libc::ENOMEM),
        }
    }

    /// Resizes a block. A null block allocates; size 0 frees and returns null.
    fn realloc/ebb_realloc(block: *mut c_void, size: usize) -> *mut c_void {
        // SAFETY: the caller fulfils the contract of realloc(3), which is that of `resize`.
        unsafe { resize(block, size) }
    }

    /// Resizes a block to `count` times `size` bytes, as `realloc`.
    fn reallocarray/ebb_reallocarray(
        block: *mut c_void, count: usize, size: usize
    ) -> *mut c_void {
        match count.checked_mul(size) {
            // SAFETY: the caller fulfils the contract of realloc(3), which is that of `resize`.
            Some(bytes) => unsafe { resize(block, bytes) },
            None => refuse(libc::ENOMEM),
        }
    }

    /// Stores an aligned block at `out` and returns 0. Or returns EINVAL or ENOMEM, and leaves
    /// `out` and `errno` as they are.
    fn posix_memalign/ebb_posix_memalign(
        out: *mut *mut c_void, align: usize, size: usize
    ) -> c_int {
        if !align.is_power_of_two() || align < size_of::<*mut c_void>() {
            return libc::EINVAL;
        }
        // SAFETY: libc returns the valid address of this thread's `errno`. The caller's `out`
        // points to a writable pointer.
        unsafe {
            let errno = *libc::__errno_location();
            let block = ENGINE.alloc_aligned(size, align);
            if block.is_null() {
                set_errno(errno);
                return libc::ENOMEM;
            }
            out.write(block.cast());
        }
        0
    }

    /// Allocates an aligned block. Sets EINVAL if the alignment is no power of two. The size need
    /// not be a multiple of it (C17).
    fn aligned_alloc/ebb_aligned_alloc(align: usize, size: usize) -> *mut c_void {
        match align.is_power_of_two() {
            true => ENGINE.alloc_aligned(size, align).cast(),
            false => refuse(libc::EINVAL),
        }
    }

    /// Allocates an aligned block. Rounds the alignment up to a power of two.
    fn memalign/ebb_memalign(align: usize, size: usize) -> *mut c_void {
        match align.checked_next_power_of_two() {
            Some(align) => ENGINE.alloc_aligned(size, align).cast(),
            None => refuse(libc::EINVAL),
        }
    }

    /// Allocates a block that begins at an OS page.
    fn valloc/ebb_valloc(size: usize) -> *mut c_void {
        ENGINE.alloc_aligned(size, ENGINE.os().page_size()).cast()
    }

    /// Allocates whole OS pages; one for size 0.
    fn pvalloc/ebb_pvalloc(size: usize) -> *mut c_void {
        let page = ENGINE.os().page_size();
        match size.max(1).checked_next_multiple_of(page) {
            Some(size) => ENGINE.alloc_aligned(size, page).cast(),
            None => refuse(libc::ENOMEM),
        }
    }

    /// The block's usable bytes; 0 for null.
    fn malloc_usable_size/ebb_malloc_usable_size(block: *mut c_void) -> usize {
        if block.is_null() { 0 } else { ENGINE.usable_size(block.cast()) }
    }
}

/// C23: frees a block of `malloc`, `calloc` or `realloc` of this size. Does nothing for null. Keeps
/// `errno`. A size of another size class stops the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_sized(block: *mut c_void, size: usize) {
    if !block.is_null() {
        // SAFETY: the caller owns the block, and does not use it again.
        unsafe { ENGINE.free_if_sized(block.cast(), size, MIN_ALIGN) }
    }
}

/// C23: frees a block of `aligned_alloc` of this alignment and size, as [`free_sized`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_aligned_sized(block: *mut c_void, align: usize, size: usize) {
    if !block.is_null() {
        // SAFETY: the caller owns the block, and does not use it again.
        unsafe { ENGINE.free_if_sized(block.cast(), size, align) }
    }
}

/// Frees a block as [`free_sized`], but trusts the size: for callers that take it from a type or a
/// slice, as Zig programs do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebb_free_sized(block: *mut c_void, size: usize) {
    if !block.is_null() {
        // SAFETY: the caller owns the block, does not use it again, and guarantees its size.
        unsafe { ENGINE.free_sized(block.cast(), size, MIN_ALIGN) }
    }
}

/// Frees a block as [`free_aligned_sized`], but trusts alignment and size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebb_free_aligned_sized(block: *mut c_void, align: usize, size: usize) {
    if !block.is_null() {
        // SAFETY: the caller owns the block, does not use it again, and guarantees its size and
        // alignment.
        unsafe { ENGINE.free_sized(block.cast(), size, align) }
    }
}

/// Resizes a block in place. `align` is its alignment: any up to 16 for blocks of `malloc`. False
/// if that is not possible, or not worth it. Then the block stays as it was. Keeps `errno`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebb_resize(block: *mut c_void, align: usize, size: usize) -> bool {
    // SAFETY: the caller owns the block, and passes its alignment.
    !block.is_null() && unsafe { ENGINE.resize(block.cast(), size, align) }
}

/// Resizes a block as [`ebb_resize`], or by moving its pages. Never copies. Null if neither is
/// possible. Then the block stays as it was. Keeps `errno`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebb_remap(block: *mut c_void, align: usize, size: usize) -> *mut c_void {
    if block.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the caller owns the block, passes its alignment, and does not use its old address
    // again.
    unsafe { ENGINE.remap(block.cast(), size, align).cast() }
}
