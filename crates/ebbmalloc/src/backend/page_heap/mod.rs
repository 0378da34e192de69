//! The page heap: hands out runs of units by address-ordered best fit, joins them when they are
//! freed, and purges them when too much free memory stays resident.
//!
//! Free runs have three states. *Dirty* runs are resident and hold old contents. *Clean* runs are
//! mapped but not resident, and read as zero. *Unmapped* runs are only addresses, so that the host
//! does not see more address space in use than there is memory. Runs of different states do not
//! join. They are handed out in this order. Besides, there are runs given up to foreign mappings.

// Lowest first: each uses only modules above it in this list, and this file.
mod advice;
mod runs;
mod gaps;
mod free_runs;
mod purge;
mod take;
mod huge;
mod alloc;
mod large;
mod medium;
mod audit;

use core::num::NonZeroUsize;
use core::ops::{Deref, DerefMut};

use crate::backend::gap_lists::GapLists;
use crate::backend::guard_pages::Guards;
use crate::backend::huge_pages::HugePages;
use crate::backend::mappings::Mappings;
use crate::backend::region::Region;
use crate::backend::retention::{PageCounts, Retention};
use crate::backend::run_tree::RunTree;
use crate::backend::tuning::FREED_ENDS;
use crate::backend::units::UnitIndex;
use crate::platform::os::Os;
use crate::platform::sync::{Guard, Lock};

/// A run that was handed out.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(crate) struct Granted {
    pub first: UnitIndex,
    /// The memory reads as zero.
    pub zeroed: bool,
}

/// The free runs, and the frontier: the first unit that was never used.
pub(crate) struct PageHeap {
    dirty: RunTree,
    clean: RunTree,
    unmapped: RunTree,
    /// The unit after the last that was ever used or given up; 0 before any was.
    frontier: UnitIndex,
    /// Units freed since the start: the clock by which free runs age.
    freed_units: u32,
    /// Gaps of free pages, for medium blocks.
    gaps: GapLists,
    /// The pages after the medium blocks that were freed last, newest first.
    freed_ends: [usize; FREED_ENDS],
    /// The most units that may be in use or dirty; `None` for no limit.
    pub limit: Option<NonZeroUsize>,
    /// Whether the limit forbade the last request.
    pub is_at_limit: bool,
    pub retention: Retention,
    pub guards: Guards,
    pub huge: HugePages,
    pub counts: PageCounts,
    pub mappings: Mappings,
}

impl PageHeap {
    /// A page heap that has handed out nothing.
    pub const fn new() -> Self {
        Self {
            dirty: RunTree::new(),
            clean: RunTree::new(),
            unmapped: RunTree::new(),
            frontier: 0,
            freed_units: 0,
            gaps: GapLists::new(),
            freed_ends: [0; FREED_ENDS],
            limit: None,
            is_at_limit: false,
            retention: Retention::new(),
            guards: Guards::new(),
            huge: HugePages::new(),
            counts: PageCounts::NONE,
            mappings: Mappings::new(),
        }
    }

    /// [`Retention::take_due_drain`].
    pub fn take_due_drain(&mut self) -> bool {
        self.retention.take_due_drain(&self.counts)
    }

    /// [`Retention::postpone_reclaim`].
    pub fn postpone_reclaim(&mut self) {
        self.retention.postpone_reclaim(&self.counts);
    }

    /// How many units to purge because they were not needed recently: [`Retention::surplus`].
    pub fn surplus(&mut self, os: &impl Os, has_scavenger: bool) -> usize {
        self.retention.surplus(os, &self.counts, has_scavenger)
    }
}

/// Where memory comes from: a page heap, with the region and the system that it works on.
pub(crate) struct Memory<'a, O> {
    pub region: &'a Region,
    pub os: &'a O,
    pub heap: &'a Lock<PageHeap>,
}

/// A locked page heap. Its methods take, free and purge runs.
pub(crate) struct Pages<'a, O> {
    heap: Guard<'a, PageHeap>,
    region: &'a Region,
    os: &'a O,
}

impl<O> Deref for Pages<'_, O> {
    type Target = PageHeap;

    fn deref(&self) -> &PageHeap {
        &self.heap
    }
}

impl<O> DerefMut for Pages<'_, O> {
    fn deref_mut(&mut self) -> &mut PageHeap {
        &mut self.heap
    }
}
