//! Defines what the engine can do for the shims (`crates/shim`) and C programs cannot ask for.
//!
//! The shared library does not have them, and installed objects have them under no global name.

use core::ffi::{c_char, c_void};
use core::ptr;

use cabi::Cut;
use engine::Stats;
use engine::internals::{Detail, ENGINE, UNIT, class_bytes, span_units};

/// Whether this engine handed the block out.
#[unsafe(no_mangle)]
extern "C" fn ebb_beside_knows(block: *mut c_void) -> bool {
    ENGINE.knows(block.cast())
}

/// Bytes that a program may use of a block of this size; 0 if there can be none; `usize::MAX` if
/// only a block tells.
#[unsafe(no_mangle)]
extern "C" fn ebb_beside_usable(align: usize, size: usize) -> usize {
    ENGINE.usable_of_request(size, align).unwrap_or(usize::MAX)
}

/// Stores block size and bytes in a span of the nth size class. False if there is none.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_beside_class(
    nth: usize,
    bytes: *mut usize,
    span_bytes: *mut usize,
) -> bool {
    let size = class_bytes(nth.saturating_add(1));
    if size > 0 {
        // SAFETY: the caller's pointers are valid for writes.
        unsafe {
            bytes.write(size);
            span_bytes.write(span_units(nth + 1) * UNIT);
        }
    }
    size > 0
}

/// The heap of the program that owns a block, as `ebb_heap_new` returned it; null for none.
#[unsafe(no_mangle)]
extern "C" fn ebb_beside_heap_of(block: *mut c_void) -> *mut c_void {
    let id = ENGINE.heap_of(block.cast());
    id.map_or(ptr::null_mut(), |id| ptr::without_provenance_mut(id.to_bits() as usize))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_beside_copy(from: *const c_void, to: *mut c_void, bytes: usize) {
    // SAFETY: the caller owns both blocks, which have as many bytes.
    unsafe { ENGINE.copy(from.cast(), to.cast(), bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_beside_clear(start: *mut c_void, bytes: usize) {
    // SAFETY: the bytes lie in a block of this engine, which the caller owns.
    unsafe { ENGINE.clear(start.cast(), bytes) }
}

#[unsafe(no_mangle)]
extern "C" fn ebb_beside_would_pack(block: *mut c_void) -> bool {
    ENGINE.would_pack(block.cast())
}

#[unsafe(no_mangle)]
extern "C" fn ebb_beside_alloc_packed(align: usize, size: usize) -> *mut c_void {
    ENGINE.alloc_packed(size, align).cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_beside_free_packed(block: *mut c_void) {
    // SAFETY: the caller gives the block up.
    unsafe { ENGINE.free_packed(block.cast()) }
}

#[unsafe(no_mangle)]
extern "C" fn ebb_beside_flush_cache() {
    ENGINE.flush_cache();
}

/// Whether a scavenger may run.
#[unsafe(no_mangle)]
extern "C" fn ebb_beside_scavenges() -> bool {
    ENGINE.may_scavenge()
}

/// Writes statistics as JSON, as `ebb_stats` does, but without a look at each span, and without the
/// kernel's figures.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_beside_stats(buffer: *mut c_char, bytes: usize) -> usize {
    // SAFETY: the caller's buffer has room for `bytes` bytes.
    unsafe { Cut::print(Detail::AtOnce, Stats::write_json, buffer, bytes) }
}
