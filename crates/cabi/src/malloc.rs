//! malloc(3) and its relatives: POSIX.1-2024, C23, and what glibc adds.
//!
//! Where these disagree: `realloc(p, 0)` frees and returns null, as glibc does; `memalign` rounds
//! an alignment up to a power of two where `aligned_alloc` refuses it; `free` keeps `errno`.

use core::ffi::{c_int, c_void};
use core::ptr;

use engine::internals::{ENGINE, MIN_ALIGN, OsMemory};

use crate::{export, set_errno};

/// Names all functions by which the C library allocates or frees at run time. A linker that leaves out what no code of the
/// program's calls (Zig's own leaves out what only shared libraries call) must not take some of them and leave others
/// to the C library, whose blocks would then be freed here.
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

pub(crate) fn refuse(errno: c_int) -> *mut c_void {
    set_errno(errno);
    ptr::null_mut()
}

#[inline(always)]
unsafe fn resize(block: *mut c_void, size: usize) -> *mut c_void {
    if block.is_null() {
        return ENGINE.alloc(size).cast();
    }
    // SAFETY: the caller's: the block is theirs.
    unsafe {
        if size == 0 {
            ENGINE.free(block.cast());
            return ptr::null_mut();
        }
        ENGINE.realloc(block.cast(), size, MIN_ALIGN).cast()
    }
}

export! {
    /// A block of `size` bytes; a unique one for 0.
    fn malloc/ebb_malloc(size: usize) -> *mut c_void {
        ENGINE.alloc(size).cast()
    }

    /// Frees a block; null is none. Keeps `errno`.
    fn free/ebb_free(block: *mut c_void) {
        // SAFETY: the caller gives the block up.
        unsafe { ENGINE.free(block.cast()) }
    }

    /// A block of `count` times `size` zero bytes. What `malloc_usable_size` tells beyond is zero, too.
    fn calloc/ebb_calloc(count: usize, size: usize) -> *mut c_void {
        match count.checked_mul(size) {
            Some(bytes) => ENGINE.alloc_zeroed(bytes).cast(),
            None => refuse(libc::ENOMEM),
        }
    }

    /// Resizes a block; null allocates, and size 0 frees and returns null.
    fn realloc/ebb_realloc(block: *mut c_void, size: usize) -> *mut c_void {
        // SAFETY: the caller's.
        unsafe { resize(block, size) }
    }

    /// `realloc` to `count` times `size` bytes.
    fn reallocarray/ebb_reallocarray(
        block: *mut c_void, count: usize, size: usize
    ) -> *mut c_void {
        match count.checked_mul(size) {
            // SAFETY: the caller's.
            Some(bytes) => unsafe { resize(block, bytes) },
            None => refuse(libc::ENOMEM),
        }
    }

    /// Stores an aligned block at `out`, or returns EINVAL or ENOMEM and leaves it and `errno`
    /// alone.
    fn posix_memalign/ebb_posix_memalign(
        out: *mut *mut c_void, align: usize, size: usize
    ) -> c_int {
        if !align.is_power_of_two() || align < size_of::<*mut c_void>() {
            return libc::EINVAL;
        }
        // SAFETY: this thread's errno; the caller's pointer to a pointer.
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

    /// An aligned block; EINVAL where the alignment is no power of two. Any size will do (C17).
    fn aligned_alloc/ebb_aligned_alloc(align: usize, size: usize) -> *mut c_void {
        if align.is_power_of_two() { ENGINE.alloc_aligned(size, align).cast() } else { refuse(libc::EINVAL) }
    }

    /// An aligned block; the alignment is rounded up to a power of two.
    fn memalign/ebb_memalign(align: usize, size: usize) -> *mut c_void {
        match align.checked_next_power_of_two() {
            Some(align) => ENGINE.alloc_aligned(size, align).cast(),
            None => refuse(libc::EINVAL),
        }
    }

    /// A block that begins on an OS page.
    fn valloc/ebb_valloc(size: usize) -> *mut c_void {
        ENGINE.alloc_aligned(size, ENGINE.os().page_size()).cast()
    }

    /// Whole OS pages; one for size 0.
    fn pvalloc/ebb_pvalloc(size: usize) -> *mut c_void {
        let page = ENGINE.os().page_size();
        match size.max(1).checked_next_multiple_of(page) {
            Some(size) => ENGINE.alloc_aligned(size, page).cast(),
            None => refuse(libc::ENOMEM),
        }
    }

    /// How many bytes of the block may be used; 0 for null.
    fn malloc_usable_size/ebb_malloc_usable_size(block: *mut c_void) -> usize {
        if block.is_null() { 0 } else { ENGINE.usable_size(block.cast()) }
    }
}

/// C23: frees a block of `malloc`, `calloc` or `realloc` of this size; null is none. Keeps `errno`. A wrong size
/// stops the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_sized(block: *mut c_void, size: usize) {
    if !block.is_null() {
        // SAFETY: the caller gives the block up.
        unsafe { ENGINE.free_if_sized(block.cast(), size, MIN_ALIGN) }
    }
}

/// C23: as [`free_sized`] for a block of `aligned_alloc` of this alignment and size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_aligned_sized(block: *mut c_void, align: usize, size: usize) {
    if !block.is_null() {
        // SAFETY: as above.
        unsafe { ENGINE.free_if_sized(block.cast(), size, align) }
    }
}

/// As [`free_sized`], but the size is relied upon: for callers that take it from a type or a slice, as Zig's do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebb_free_sized(block: *mut c_void, size: usize) {
    if !block.is_null() {
        // SAFETY: the caller gives the block up, and vouches for its size.
        unsafe { ENGINE.free_sized(block.cast(), size, MIN_ALIGN) }
    }
}

/// As [`free_aligned_sized`], but alignment and size are relied upon.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebb_free_aligned_sized(block: *mut c_void, align: usize, size: usize) {
    if !block.is_null() {
        // SAFETY: as above.
        unsafe { ENGINE.free_sized(block.cast(), size, align) }
    }
}

/// Resizes a block in place: of this alignment (any up to 16 for those of `malloc`) to this size. False if
/// that is not possible, or not worth it, and then the block stays as it was. Keeps `errno`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebb_resize(block: *mut c_void, align: usize, size: usize) -> bool {
    // SAFETY: the caller's.
    !block.is_null() && unsafe { ENGINE.resize(block.cast(), size, align) }
}

/// Resizes a block as [`ebb_resize`] does, or by moving its pages elsewhere; never copies. Null if neither is
/// possible, and then the block stays as it was. Keeps `errno`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebb_remap(block: *mut c_void, align: usize, size: usize) -> *mut c_void {
    if block.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the caller's.
    unsafe { ENGINE.remap(block.cast(), size, align).cast() }
}
