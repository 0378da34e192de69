//! A set of free runs ordered by length, then address.
//!
//! It is a treap (Seidel and Aragon, "Randomized search trees", 1996) whose links lie in the
//! records of the runs. The rank of a run is a hash of its address, so the shape depends on the
//! contents alone.

mod audit;

use crate::backend::region::{Region, UnitIndex};
use crate::backend::run::Run;

/// A set of free runs. A link is the first unit of a run, 0 for none.
pub(crate) struct RunTree {
    root: UnitIndex,
}

/// Order in the tree: shorter first, then lower address.
type Key = (u32, UnitIndex);

#[allow(clippy::mut_from_ref)]
fn node(region: &Region, at: UnitIndex) -> &mut Run {
    // SAFETY: the caller holds the lock of the page heap, which guards all run records. No caller
    // keeps a reference to a node across a second call for the same node.
    unsafe { &mut *region.run(at) }
}

fn key(region: &Region, at: UnitIndex) -> Key {
    (node(region, at).units, at)
}

fn rank(at: UnitIndex) -> u32 {
    at.wrapping_mul(0x9e37_79b9).swap_bytes().wrapping_mul(0x85eb_ca6b)
}

impl RunTree {
    /// The empty set.
    pub const fn new() -> Self {
        Self { root: 0 }
    }

    /// The shortest run of at least `units` units, the lowest among equals.
    pub fn best_fit(&self, region: &Region, units: u32) -> Option<UnitIndex> {
        self.first_from(region, (units, 0))
    }

    /// The next run in order after the one at `at`, which is in the tree.
    pub fn next(&self, region: &Region, at: UnitIndex) -> Option<UnitIndex> {
        let (units, first) = key(region, at);
        self.first_from(region, (units, first + 1))
    }

    fn first_from(&self, region: &Region, from: Key) -> Option<UnitIndex> {
        let (mut at, mut best) = (self.root, 0);
        while at != 0 {
            let run = node(region, at);
            if (run.units, at) >= from {
                best = at;
                at = run.left;
            } else {
                at = run.right;
            }
        }
        (best != 0).then_some(best)
    }

    /// The run in order before the one at `at`, which is in the tree.
    pub fn before(&self, region: &Region, at: UnitIndex) -> Option<UnitIndex> {
        let to = key(region, at);
        let (mut at, mut best) = (self.root, 0);
        while at != 0 {
            let run = node(region, at);
            if (run.units, at) < to {
                best = at;
                at = run.right;
            } else {
                at = run.left;
            }
        }
        (best != 0).then_some(best)
    }

    /// The longest run and its length in units, the highest among equals.
    pub fn longest(&self, region: &Region) -> Option<(UnitIndex, u32)> {
        let mut at = self.root;
        while at != 0 {
            let run = node(region, at);
            if run.right == 0 {
                return Some((at, run.units));
            }
            at = run.right;
        }
        None
    }

    /// Adds the run whose record is that of unit `at`.
    pub fn insert(&mut self, region: &Region, at: UnitIndex) {
        let key_of_new = key(region, at);
        let mut link = &raw mut self.root;
        // SAFETY: `link` points to the root or to a child link of a node, and `node` makes no
        // reference to that node meanwhile.
        unsafe {
            while *link != 0 && rank(*link) >= rank(at) {
                let below = node(region, *link);
                link = if key_of_new < (below.units, *link) {
                    &raw mut below.left
                } else {
                    &raw mut below.right
                };
            }
            let (left, right) = split(region, *link, key_of_new);
            let new = node(region, at);
            (new.left, new.right) = (left, right);
            *link = at;
        }
    }

    /// Removes the run at `at`, which must be in the tree.
    pub fn remove(&mut self, region: &Region, at: UnitIndex) {
        let key_of_old = key(region, at);
        let mut link = &raw mut self.root;
        // SAFETY: `link` points to the root or to a child link of a node, and `node` makes no
        // reference to that node meanwhile.
        unsafe {
            while *link != at {
                assert!(*link != 0, "a free run is missing from its tree");
                let below = node(region, *link);
                link = if key_of_old < (below.units, *link) {
                    &raw mut below.left
                } else {
                    &raw mut below.right
                };
            }
            let Run { left, right, .. } = *node(region, at);
            *link = merge(region, left, right);
        }
    }
}

/// Splits a subtree into the runs below the key and those above.
fn split(region: &Region, at: UnitIndex, by: Key) -> (UnitIndex, UnitIndex) {
    if at == 0 {
        return (0, 0);
    }
    let Run { left, right, .. } = *node(region, at);
    if key(region, at) < by {
        let (low, high) = split(region, right, by);
        node(region, at).right = low;
        (at, high)
    } else {
        let (low, high) = split(region, left, by);
        node(region, at).left = high;
        (low, at)
    }
}

/// Joins two subtrees. All runs of `low` must come before all runs of `high`.
fn merge(region: &Region, low: UnitIndex, high: UnitIndex) -> UnitIndex {
    if low == 0 || high == 0 {
        return low | high;
    }
    if rank(low) >= rank(high) {
        let right = node(region, low).right;
        node(region, low).right = merge(region, right, high);
        low
    } else {
        let left = node(region, high).left;
        node(region, high).left = merge(region, low, left);
        high
    }
}
