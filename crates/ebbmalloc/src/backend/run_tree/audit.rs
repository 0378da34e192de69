//! Audits a set of free runs, for tests.

use super::{Key, RunTree, key, node, rank};
use crate::backend::region::{Region, UnitIndex};
use crate::backend::run::Run;

impl RunTree {
    /// Panics if the tree is out of order. Returns the number of runs.
    pub fn check(&self, region: &Region) -> usize {
        fn walk(region: &Region, at: UnitIndex, low: Key, high: Key) -> usize {
            if at == 0 {
                return 0;
            }
            let Run { left, right, .. } = *node(region, at);
            let here = key(region, at);
            assert!(low < here && here < high, "run {at} is out of order");
            for child in [left, right] {
                assert!(child == 0 || rank(child) <= rank(at), "rank of run {child}");
            }
            1 + walk(region, left, low, here) + walk(region, right, here, high)
        }
        walk(region, self.root, (0, 0), (u32::MAX, u32::MAX))
    }
}
