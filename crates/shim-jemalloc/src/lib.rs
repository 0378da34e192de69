//! Defines the functions of jemalloc's own interface on ebbmalloc, each under its name, and with
//! the prefixes that programs have built jemalloc with: `je_` (redis) and `_rjem_` (Rust).
//!
//! The header is `include/jemalloc/jemalloc.h`. Numbers and types are those of jemalloc 5, so that
//! a compiled program runs, too.

#![no_std]
// The callers are C programs, and the contracts are those of jemalloc(3).
#![allow(clippy::missing_safety_doc)]

mod arenas;
mod control;
mod flags;
mod nodes;

use core::ffi::{CStr, c_char, c_int, c_void};

use control::Call;
use flags::Flags;

/// Defines functions under several names each.
macro_rules! export {
    ($($(#[$meta:meta])* fn $($name:ident)+ = $args:tt -> $ret:ty $body:block)+) => {$(
        export!(@each [$($name)+] [$(#[$meta])*] $args $ret $body);
    )+};
    (@each [] $meta:tt $args:tt $ret:ty $body:block) => {};
    (@each [$name:ident $($more:ident)*] [$($meta:tt)*] ($($args:tt)*) $ret:ty $body:block) => {
        $($meta)*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($args)*) -> $ret $body
        export!(@each [$($more)*] [$($meta)*] ($($args)*) $ret $body);
    };
}

// SAFETY of all calls below: the caller fulfils the contract of jemalloc's function, which is that
// of ebbmalloc's.

export! {
    /// Allocates a block with flags.
    fn mallocx je_mallocx _rjem_mallocx = (size: usize, flags: c_int) -> *mut c_void {
        let flags = Flags(flags);
        match flags.arena() {
            0 if flags.skips_caches() && !flags.zeroes() => {
                shim::alloc_packed(flags.align(), size)
            }
            arena => arenas::alloc(arena, flags.align(), size, flags.zeroes()),
        }
    }

    /// Resizes a block, which may move.
    fn rallocx je_rallocx _rjem_rallocx = (
        block: *mut c_void,
        size: usize,
        flags: c_int
    ) -> *mut c_void {
        let flags = Flags(flags);
        unsafe {
            let before = flags.size_before(block);
            let new = arenas::realloc(flags.arena(), block, flags.align(), size);
            flags.clear_from(before, new);
            new
        }
    }

    /// Resizes a block in place, to `size + extra` bytes or to `size`. Returns its size then.
    fn xallocx je_xallocx _rjem_xallocx = (
        block: *mut c_void,
        size: usize,
        extra: usize,
        flags: c_int
    ) -> usize {
        let flags = Flags(flags);
        unsafe {
            let before = flags.size_before(block);
            let most = size.saturating_add(extra);
            let _ = shim::ebb_resize(block, flags.align(), most)
                || extra > 0 && shim::ebb_resize(block, flags.align(), size);
            flags.clear_from(before, block);
            shim::ebb_malloc_usable_size(block)
        }
    }

    /// The bytes that the program may use of a block.
    fn sallocx je_sallocx _rjem_sallocx = (block: *const c_void, _flags: c_int) -> usize {
        unsafe { shim::ebb_malloc_usable_size(block.cast_mut()) }
    }

    /// Frees a block.
    fn dallocx je_dallocx _rjem_dallocx = (block: *mut c_void, flags: c_int) -> () {
        match Flags(flags).skips_caches() {
            true => unsafe { shim::free_packed(block) },
            false => unsafe { shim::ebb_free(block) },
        }
    }

    /// Frees a block. The size may be any between those of `mallocx` and `sallocx`, so it is not
    /// used.
    fn sdallocx je_sdallocx _rjem_sdallocx = (
        block: *mut c_void,
        _size: usize,
        flags: c_int
    ) -> () {
        unsafe { je_dallocx(block, flags) }
    }

    /// What `sallocx` would say of such a block; 0 if there can be none.
    fn nallocx je_nallocx _rjem_nallocx = (size: usize, flags: c_int) -> usize {
        shim::usable_for(Flags(flags).align(), size)
    }

    /// Reads or writes a node, by name.
    fn mallctl je_mallctl _rjem_mallctl = (
        name: *const c_char,
        old: *mut c_void,
        old_bytes: *mut usize,
        new: *mut c_void,
        new_bytes: usize
    ) -> c_int {
        if name.is_null() {
            return libc::ENOENT;
        }
        let name = unsafe { CStr::from_ptr(name) }.to_bytes();
        match nodes::find(name) {
            Some((node, numbers)) => {
                node.call(&unsafe { Call::new(numbers, old, old_bytes, new, new_bytes) })
            }
            None => libc::ENOENT,
        }
    }

    /// Stores the numbers that stand for a name.
    fn mallctlnametomib je_mallctlnametomib _rjem_mallctlnametomib = (
        name: *const c_char,
        mib: *mut usize,
        length: *mut usize
    ) -> c_int {
        if name.is_null() || mib.is_null() || length.is_null() {
            return libc::EINVAL;
        }
        unsafe {
            match nodes::mib(CStr::from_ptr(name).to_bytes()) {
                Some((parts, count)) if count <= length.read() => {
                    mib.copy_from_nonoverlapping(parts.as_ptr(), count);
                    length.write(count);
                    0
                }
                Some(_) => libc::EINVAL,
                None => libc::ENOENT,
            }
        }
    }

    /// Reads or writes a node, by its numbers.
    fn mallctlbymib je_mallctlbymib _rjem_mallctlbymib = (
        mib: *const usize,
        length: usize,
        old: *mut c_void,
        old_bytes: *mut usize,
        new: *mut c_void,
        new_bytes: usize
    ) -> c_int {
        if mib.is_null() || length == 0 {
            return libc::ENOENT;
        }
        match nodes::of_mib(unsafe { core::slice::from_raw_parts(mib, length) }) {
            Some((node, numbers)) => {
                node.call(&unsafe { Call::new(numbers, old, old_bytes, new, new_bytes) })
            }
            None => libc::ENOENT,
        }
    }

    /// Passes the statistics to `write`, or prints them to standard error. They are ebbmalloc's
    /// own; `J` among the options asks for JSON.
    fn malloc_stats_print je_malloc_stats_print _rjem_malloc_stats_print = (
        write: Option<unsafe extern "C" fn(*mut c_void, *const c_char)>,
        opaque: *mut c_void,
        options: *const c_char
    ) -> () {
        let json =
            !options.is_null() && unsafe { CStr::from_ptr(options) }.to_bytes().contains(&b'J');
        shim::figures::print(json, |text| match write {
            // SAFETY: a zero byte follows the text.
            Some(write) => unsafe { write(opaque, text.as_ptr().cast()) },
            None => unsafe {
                libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
            },
        });
    }

    /// Whether the program should replace this block by one of `mallocx` with
    /// `MALLOCX_TCACHE_NONE`, against fragmentation. It is an addition of redis to jemalloc.
    fn je_get_defrag_hint = (block: *mut c_void) -> c_int {
        shim::would_pack(block) as c_int
    }

    fn je_malloc _rjem_malloc = (size: usize) -> *mut c_void {
        unsafe { shim::ebb_malloc(size) }
    }

    fn je_calloc _rjem_calloc = (count: usize, size: usize) -> *mut c_void {
        unsafe { shim::ebb_calloc(count, size) }
    }

    fn je_realloc _rjem_realloc = (block: *mut c_void, size: usize) -> *mut c_void {
        unsafe { shim::ebb_realloc(block, size) }
    }

    fn je_free _rjem_free = (block: *mut c_void) -> () {
        unsafe { shim::ebb_free(block) }
    }

    fn je_posix_memalign _rjem_posix_memalign = (
        out: *mut *mut c_void,
        align: usize,
        size: usize
    ) -> c_int {
        unsafe { shim::ebb_posix_memalign(out, align, size) }
    }

    fn je_aligned_alloc _rjem_aligned_alloc = (align: usize, size: usize) -> *mut c_void {
        unsafe { shim::ebb_aligned_alloc(align, size) }
    }

    fn je_memalign _rjem_memalign = (align: usize, size: usize) -> *mut c_void {
        unsafe { shim::ebb_memalign(align, size) }
    }

    fn je_valloc _rjem_valloc = (size: usize) -> *mut c_void {
        unsafe { shim::ebb_valloc(size) }
    }

    fn je_pvalloc _rjem_pvalloc = (size: usize) -> *mut c_void {
        unsafe { shim::ebb_pvalloc(size) }
    }

    fn je_malloc_usable_size _rjem_malloc_usable_size = (block: *const c_void) -> usize {
        unsafe { shim::ebb_malloc_usable_size(block.cast_mut()) }
    }
}
