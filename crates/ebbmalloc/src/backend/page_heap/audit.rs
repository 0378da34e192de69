//! Audits the page heap, for tests: panics at the first run that is recorded wrongly.

use core::iter;

use super::Pages;
use crate::backend::huge_pages::places;
use crate::backend::mappings::flags;
use crate::backend::region::UnitIndex;
use crate::backend::retention::PageCounts;
use crate::backend::run::{Run, RunState};
use crate::backend::units::pages_for;
use crate::platform::os::Os;
use crate::size_class::UNIT;

impl<O: Os> Pages<'_, O> {
    /// All runs with their first units. Together they are all units that were ever used; panics if
    /// not.
    pub fn runs(&self) -> impl Iterator<Item = (UnitIndex, Run)> {
        assert!(
            self.heap.frontier as usize * UNIT <= self.region.committed(),
            "frontier {}",
            self.heap.frontier
        );
        let mut next = 1;
        iter::from_fn(move || {
            let unit = (next < self.heap.frontier).then_some(next)?;
            // SAFETY: the unit is below the frontier, hence committed.
            let run = unsafe { *self.region.run(unit) };
            assert!(
                run.units > 0 && unit + run.units <= self.heap.frontier,
                "run at {unit}: {run:?}"
            );
            next += run.units;
            Some((unit, run))
        })
    }

    /// Panics at the first paged unit or medium block that is recorded wrongly. Returns how many
    /// units are paged, how many blocks the program has, and the bytes of their pages.
    pub fn check_paged(&self) -> (usize, usize, usize) {
        let page = self.os.page_size();
        let (mut units, mut blocks, mut live_pages, mut pages) = (0, 0, 0, 0);
        let (mut used_pages, mut open, mut last_end) = (0, 0, 0);
        for (unit, run) in self.runs().filter(|&(unit, _)| self.is_paged(unit)) {
            let used = self.used(unit);
            let last = 1 << (self.unit_pages() - 1);
            assert!(run.state == RunState::InUse && run.units == 1, "paged unit {unit}: {run:?}");
            assert!(used != 0 && used as usize & !(2 * last - 1) == 0, "{unit} uses {used:#b}");
            units += 1;
            used_pages += used.count_ones() as usize;
            open += run.flags.open() as usize;
            self.check_is_open(unit, run.flags.open());
            let entry = self.region.entry(unit as usize);
            if entry.is_medium() || entry.is_cached() {
                assert!(!run.flags.open(), "a block begins in open unit {unit}");
                let begin = unit as usize * self.unit_pages() + entry.begin(page) / page;
                let block = pages_for(begin, run.left as usize, page);
                assert!(run.left as usize > UNIT, "medium block in {unit}: {run:?}");
                assert!(last_end <= block.start, "blocks overlap in unit {unit}");
                for unit in self.units_of(&block) {
                    let mask = self.mask(unit, &block);
                    assert_eq!(self.used(unit) & mask, mask, "pages of unit {unit}");
                }
                last_end = block.end;
                pages += block.len();
                if entry.is_medium() {
                    (blocks, live_pages) = (blocks + 1, live_pages + block.len());
                }
            }
        }
        assert_eq!(pages, used_pages, "pages of medium blocks");
        assert_eq!(self.check_gaps(), open, "open units");
        (units, blocks, live_pages * page)
    }

    /// Panics at the first run that is recorded wrongly. Returns how many units are in use.
    pub fn check(&self) -> usize {
        let mut counts = PageCounts::NONE;
        let mut free_runs = 0;
        let mut last_state = RunState::InUse;
        for (unit, run) in self.runs() {
            // SAFETY: the run ends below the frontier, hence at a committed unit.
            let end = unsafe { *self.region.run(unit + run.units - 1) };
            assert_eq!((end.state, end.units), (run.state, run.units), "ends of run at {unit}");
            match run.state {
                RunState::InUse => counts.in_use += run.units as usize,
                RunState::Foreign => counts.foreign += run.units as usize,
                state => {
                    assert_ne!(state, last_state, "neighbours at {unit} were not joined");
                    counts.add(state, run.units);
                    free_runs += 1;
                }
            }
            last_state = run.state;
        }
        let PageCounts { purged, purges, huge_pages, lent, .. } = self.heap.counts;
        let known = PageCounts { purged, purges, huge_pages, lent, ..counts };
        assert_eq!(known, self.heap.counts, "unit counts");
        let trees = [&self.heap.dirty, &self.heap.clean, &self.heap.unmapped];
        let in_trees: usize = trees.iter().map(|tree| tree.check(self.region)).sum();
        assert_eq!(free_runs, in_trees, "tree sizes");
        let units = self.region.units_in(1..self.region.committed() / UNIT);
        let begin = units.filter(|&unit| flags(self.region, unit as UnitIndex).begins()).count();
        assert_eq!(begin, self.heap.mappings.count(), "mappings");
        let all = 0..(self.region.committed() / UNIT) as UnitIndex;
        let (mut huge_pages, mut advised, mut lent) = (0, 0, 0);
        for place in places(self.region, &self.heap.counts, all) {
            let flags = flags(self.region, place);
            huge_pages += flags.huge() as usize;
            advised += flags.advised() as u32;
            lent += flags.lent() as usize;
            assert!(flags.lent() || !flags.advised(), "advice at {place} for no huge page");
        }
        assert_eq!(huge_pages, self.heap.counts.huge_pages, "huge pages");
        assert_eq!(advised, self.heap.huge.advised, "advised huge pages");
        assert_eq!(lent, self.heap.counts.lent, "lent huge pages");
        counts.in_use
    }
}
