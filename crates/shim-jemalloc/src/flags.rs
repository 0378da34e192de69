//! Reads the flags of `mallocx` and its relatives.

use core::ffi::{c_int, c_uint, c_void};

/// An int as jemalloc packs it: the binary logarithm of the alignment, `MALLOCX_ZERO`, a thread
/// cache, and an arena. Thread caches other than none are ignored.
#[derive(Clone, Copy)]
pub struct Flags(pub c_int);

const LG_ALIGN: c_int = 0x3f;
const ZERO: c_int = 0x40;
const TCACHE: c_int = 0xfff00;
const TCACHE_NONE: c_int = 0x100;
const ARENA_SHIFT: u32 = 20;

impl Flags {
    pub fn align(self) -> usize {
        1 << (self.0 & LG_ALIGN)
    }

    pub fn zeroes(self) -> bool {
        self.0 & ZERO != 0
    }

    /// The number of the arena; 0 if the program names none.
    pub fn arena(self) -> usize {
        (self.0 as c_uint >> ARENA_SHIFT).saturating_sub(1) as usize
    }

    /// Whether the program asks for no cache: then blocks go to full spans, and come from any.
    pub fn skips_caches(self) -> bool {
        self.0 & TCACHE == TCACHE_NONE
    }

    /// The size of a block that is to be resized, if bytes behind it must be cleared.
    pub unsafe fn size_before(self, block: *mut c_void) -> Option<usize> {
        // SAFETY: the caller owns the block.
        self.zeroes().then(|| unsafe { shim::ebb_malloc_usable_size(block) })
    }

    /// Clears the bytes of a resized block from its old size on.
    pub unsafe fn clear_from(self, before: Option<usize>, block: *mut c_void) {
        let Some(before) = before else { return };
        // SAFETY: the caller owns the block, and these bytes lie in it.
        unsafe { shim::clear_from(block, before) }
    }
}
