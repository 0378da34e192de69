//! What a program can ask of an allocator, and programs of it.

/// One operation. `nth` picks among the blocks that the worker holds, modulo their number; with
/// none there the operation does nothing.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// A new block of `size` bytes at a multiple of `align`, a power of two.
    Alloc {
        /// Bytes.
        size: usize,
        /// Bytes; 1 stands for malloc's own alignment.
        align: usize,
    },
    /// A new block of zeros.
    AllocZeroed {
        /// Bytes.
        size: usize,
    },
    /// Frees a block by its address alone.
    Free {
        /// Which.
        nth: usize,
    },
    /// Frees a block by its address and what it was asked for with.
    FreeSized {
        /// Which.
        nth: usize,
    },
    /// Resizes a block.
    Realloc {
        /// Which.
        nth: usize,
        /// Its new size, in bytes.
        size: usize,
    },
    /// Resizes a block in place, if that is possible.
    Resize {
        /// Which.
        nth: usize,
        /// Its new size, in bytes.
        size: usize,
    },
    /// Resizes a block without copying, if that is possible.
    Remap {
        /// Which.
        nth: usize,
        /// Its new size, in bytes.
        size: usize,
    },
    /// Asks how much of a block may be used.
    UsableSize {
        /// Which.
        nth: usize,
    },
    /// Asks for more than any process can have, for a new block or for one that there is. Nothing
    /// comes of it.
    Absurd {
        /// Which.
        nth: usize,
        /// Which size, and by which call.
        pick: usize,
    },
    /// Gives free memory back.
    Trim,
    /// Gives a block to somebody else.
    HandOver {
        /// Which.
        nth: usize,
    },
}

/// An endless program, the same for the same seed.
#[derive(Clone, Debug)]
pub struct Program {
    state: u64,
}

impl Program {
    /// The program with this number.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A number below `bound`: Steele, Lea, Flood, "Fast splittable pseudorandom number
    /// generators", 2014.
    fn below(&mut self, bound: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ bits >> 31) % bound as u64) as usize
    }

    fn size(&mut self) -> usize {
        let most = match self.below(32) {
            0..12 => 64,
            12..20 => 512,
            20..28 => 4096,
            28..31 => 40_000,
            _ => 300_000,
        };
        self.below(most + 1)
    }
}

impl Iterator for Program {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        let nth = self.below(1 << 16);
        Some(match self.below(32) {
            0..9 => Op::Alloc { size: self.size(), align: 1 },
            9..11 => Op::Alloc { size: self.size(), align: 1 << self.below(18) },
            11..14 => Op::AllocZeroed { size: self.size() },
            14..19 => Op::Free { nth },
            19..24 => Op::FreeSized { nth },
            24..27 => Op::Realloc { nth, size: self.size() },
            27 if self.below(2) == 0 => Op::Resize { nth, size: self.size() },
            27 => Op::Remap { nth, size: self.size() },
            28 => Op::UsableSize { nth },
            29..31 => Op::HandOver { nth },
            _ if self.below(8) == 0 => Op::Trim,
            _ if nth.is_multiple_of(4) => Op::Absurd { nth, pick: nth / 4 },
            _ => Op::UsableSize { nth },
        })
    }
}
