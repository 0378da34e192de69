//! Audits the spans of one class, for tests.

use super::ClassSpans;
use crate::backend::region::Region;
use crate::size_class::SizeClass;

impl ClassSpans {
    /// Walks all listed spans, and panics at one whose record or list is wrong.
    ///
    /// Returns the free blocks in listed spans, and the units of these spans.
    pub fn check(&self, region: &Region, class: SizeClass) -> (usize, usize) {
        let is_span = |unit| self.is_span(region, class, unit);
        assert!(self.current == 0 || is_span(self.current), "claimed from: {}", self.current);
        let (mut free, mut units) = (0, 0);
        for (list, &head) in self.heads.iter().enumerate() {
            assert_eq!(head != 0, self.filled >> list & 1 == 1, "summary bit of list {list}");
            let (mut unit, mut previous) = (head, 0);
            while unit != 0 {
                // SAFETY: a listed unit heads a span of this class, whose lock we hold.
                let span = unsafe { &*region.span(unit) };
                assert!(is_span(unit), "listed: {unit}");
                span.check(class);
                assert_eq!(self.list_of(span), Some(list), "span {unit} is in the wrong list");
                assert_eq!(span.previous, previous, "back link of span {unit}");
                assert!(!span.is_idle(), "span {unit} should have been retired");
                free += span.free as usize;
                units += span.units as usize;
                (previous, unit) = (unit, span.next);
            }
        }
        (free, units)
    }
}
