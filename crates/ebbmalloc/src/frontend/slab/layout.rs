//! Offsets of the parts of a slab.

use core::mem::offset_of;

use crate::frontend::miss_history::History;
use crate::frontend::tuning::MARKS;
use crate::platform::sync::Lock;
use crate::size_class::CLASSES;

/// log2 of the distance between two slabs, in bytes.
pub(crate) const SLAB_SHIFT: u32 = 18;

/// Offset of the marks, of 32 bits each, from the start of a slab. They share a page with the
/// headers, so an operation needs one TLB entry less (decisions/0002). Caches of threads have their
/// small extents there.
pub(crate) const MARKS_AT: usize = 1024;
/// Offset of the digests, of 32 bits by class index: see [`Digests`](super::Digests). Only slabs
/// that have marks have digests.
pub(super) const DIGESTS_AT: usize = MARKS_AT + MARKS * size_of::<u32>();
pub(super) const DIGESTS_END: usize = DIGESTS_AT + CLASSES * size_of::<u32>();
/// Multiplier of an address's lower half: the upper bits of the product are the number of its mark.
/// Chosen so that nearly 200 neighbours have different marks, whatever their class.
pub(crate) const MARK_MULTIPLIER: u32 = 0xd050_1e0b;
/// Number of bits of the product below the number of the mark.
pub(crate) const MARK_SHIFT: u32 = 32 - MARKS.ilog2();

/// The head of a slab; the stacks' slots follow.
#[repr(C)]
pub(super) struct SlabStart {
    /// Stays null: the top of a stack that was never set up.
    zero: u64,
    /// Held by the thread that works on the slab, for slabs that are locked: those of slot mode,
    /// and transfer caches.
    pub(super) lock: Lock<()>,
    /// Bits of a [`Header`](super::Header) for each class.
    pub(super) headers: [u64; CLASSES],
    pub(super) history: History,
}

/// Offset of the headers from the start of a slab, by class index.
pub(crate) const HEADERS_AT: usize = offset_of!(SlabStart, headers);
