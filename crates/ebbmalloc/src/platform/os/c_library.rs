//! The addresses of the C library.

use core::ops::Range;

/// The most parts of the C library's data.
const PARTS: usize = 16;

/// The addresses of the C library, as far as they can be told from the program's.
#[derive(Clone, Debug)]
pub struct CLibrary {
    parts: [(usize, usize); PARTS],
    count: usize,
    /// The code of the loader.
    pub(crate) loader: Range<usize>,
    /// The code of the file that contains the engine.
    pub(crate) own: Range<usize>,
}

impl CLibrary {
    /// No addresses.
    pub const UNKNOWN: Self = Self { parts: [(0, 0); PARTS], count: 0, loader: 0..0, own: 0..0 };

    /// A C library whose data are one part of memory: its address and bytes. For tests.
    pub const fn of(part: (usize, usize)) -> Self {
        let mut parts = [(0, 0); PARTS];
        parts[0] = part;
        Self { parts, count: 1, ..Self::UNKNOWN }
    }

    /// The parts of its data: address and bytes, both multiples of a word.
    pub(crate) fn data(&self) -> &[(usize, usize)] {
        &self.parts[..self.count]
    }

    #[allow(dead_code, reason = "not used where there is none")]
    pub(super) fn add(&mut self, start: usize, bytes: usize) {
        const WORD: usize = size_of::<usize>();
        let begin = start.next_multiple_of(WORD);
        let bytes = (start + bytes).saturating_sub(begin) / WORD * WORD;
        if self.count < PARTS && bytes > 0 {
            self.parts[self.count] = (begin, bytes);
            self.count += 1;
        }
    }
}
