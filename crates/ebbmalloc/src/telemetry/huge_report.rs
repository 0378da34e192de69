//! Says how much of a heap lies in huge pages, and why not more.

use core::fmt::{self, Display};

use crate::backend::huge_pages::{HUGE_BYTES, HugeAnswer};
use crate::figures::numbers::Bytes;

/// What a heap has in huge pages. As text it is a sentence.
#[derive(Clone, Copy, Debug)]
pub struct HugeReport {
    /// Bytes of the huge pages that the heap asked for. The kernel may have given small pages, and
    /// the program may not have touched all of them yet.
    pub bytes: u64,
    /// Why it has no more.
    pub why: &'static str,
}

impl HugeReport {
    /// Of a heap with `count` huge pages, whose last request was answered so.
    pub(crate) fn new(count: usize, answer: HugeAnswer) -> Self {
        Self { bytes: (count as u64).saturating_mul(HUGE_BYTES as u64), why: answer.why() }
    }
}

impl Display for HugeReport {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let &Self { bytes, why } = self;
        write!(f, "Up to {} of the heap may be in huge pages. Why not more: {why}.", Bytes(bytes))
    }
}
