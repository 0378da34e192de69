//! Operations of a program on an allocator, and endless random programs of them.

/// One operation. `nth` picks among the blocks that the worker holds, modulo their number. If it
/// holds none, the operation does nothing.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Allocates a block of `size` bytes at a multiple of `align`, a power of two.
    Alloc {
        /// In bytes.
        size: usize,
        /// In bytes; 1 stands for malloc's own alignment.
        align: usize,
    },
    /// Allocates a block of zeros.
    AllocZeroed {
        /// In bytes.
        size: usize,
    },
    /// Frees a block by its address.
    Free {
        /// Picks the block.
        nth: usize,
    },
    /// Frees a block by its address, size and alignment.
    FreeSized {
        /// Picks the block.
        nth: usize,
    },
    /// Resizes a block.
    Realloc {
        /// Picks the block.
        nth: usize,
        /// Its new size, in bytes.
        size: usize,
    },
    /// Resizes a block in place, if that is possible.
    Resize {
        /// Picks the block.
        nth: usize,
        /// Its new size, in bytes.
        size: usize,
    },
    /// Resizes a block without copying, if that is possible.
    Remap {
        /// Picks the block.
        nth: usize,
        /// Its new size, in bytes.
        size: usize,
    },
    /// Asks for a block's usable size.
    UsableSize {
        /// Picks the block.
        nth: usize,
    },
    /// Requests more than any process can have, for a new block or for one that the worker holds.
    /// The engine refuses.
    Absurd {
        /// Picks the block.
        nth: usize,
        /// Picks the size and the call.
        pick: usize,
    },
    /// Returns free memory to the kernel.
    Trim,
    /// Hands a block over to another worker.
    HandOver {
        /// Picks the block.
        nth: usize,
    },
}

/// An endless random program. Equal seeds make equal programs.
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
        let max = match self.below(32) {
            0..12 => 64,
            12..20 => 512,
            20..28 => 4096,
            28..31 => 40_000,
            _ => 300_000,
        };
        self.below(max + 1)
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
