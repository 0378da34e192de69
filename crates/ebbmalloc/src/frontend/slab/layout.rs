//! Where the parts of a slab lie.

use core::mem::offset_of;

use crate::frontend::miss_history::History;
use crate::frontend::tuning::MARKS;
use crate::platform::sync::Lock;
use crate::size_class::CLASSES;

/// log2 of the distance between two slabs, in bytes.
pub(crate) const SLAB_SHIFT: u32 = 18;

/// Offset of the marks, of 32 bits each, from the start of a slab. They share a page with the headers, which is one entry of the TLB less
/// to have for each operation (decisions/0002): they lie where caches of threads have their smallest stacks.
pub(crate) const MARKS_AT: usize = 1024;
/// Offset of digests, of 32 bits by class index, of what the stacks were when somebody last looked which are in use. Only slabs that have
/// marks have these.
pub(super) const SEEN_AT: usize = MARKS_AT + MARKS * size_of::<u32>();
pub(super) const SEEN_END: usize = SEEN_AT + CLASSES * size_of::<u32>();
/// What an address's lower half is multiplied by: the upper bits of the product are its mark. Chosen so that nearly 200
/// neighbours have different marks, whatever their class.
pub(crate) const MARK_MULTIPLIER: u32 = 0xd050_1e0b;
/// How many bits of the product are below those.
pub(crate) const MARK_SHIFT: u32 = 32 - MARKS.ilog2();

/// The head of a slab; the stacks' slots follow.
#[repr(C)]
pub(super) struct SlabStart {
    /// Stays null: what a stack that was never set up has on top.
    zero: u64,
    /// Held by whoever works on the slab, in the mode that locks.
    pub(super) lock: Lock<()>,
    /// Bits of a [`Header`](super::Header) for each class.
    pub(super) headers: [u64; CLASSES],
    pub(super) history: History,
}

/// Offset of the headers from the start of a slab, by class index.
pub(crate) const HEADERS_AT: usize = offset_of!(SlabStart, headers);
