//! The page heap's record of a run. The region has a table of them; `pages.rs` keeps them.

/// The page heap's record of a unit. Those of a run's first and last unit are kept up to date;
/// between them anything may stand.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Run {
    pub(crate) state: State,
    pub(crate) marks: Marks,
    /// The upper 16 of 48 bits of how many bytes a large block was asked for with.
    pub(crate) asked_high: u16,
    /// Units in the run; in the first and the last record of a free run.
    pub(crate) units: u32,
    /// Children in the tree of free runs: the unit where each begins, 0 for none. In use: the lower bits of the bytes that
    /// a large block was asked for with, and the heap that the run belongs to.
    pub(crate) left: u32,
    pub(crate) right: u32,
}

/// Bits of `left`.
const LEFT_BITS: u32 = u32::BITS;

/// Bytes that may be used of a large block of no heap that was asked for with this size: OS pages of `page` bytes, and not all
/// of its units, since what is behind may go back to the kernel.
pub(crate) fn large_bytes(size: usize, page: usize) -> usize {
    size.max(1).checked_next_multiple_of(page).unwrap_or(usize::MAX)
}

impl Run {
    /// A record that was read from another process, as it may have looked in the middle of a change:
    /// what is no state at all counts as in use.
    pub(crate) fn from_bytes(bytes: &[u8; size_of::<Self>()]) -> Self {
        let state = match bytes[0] {
            1 => State::Dirty,
            2 => State::Clean,
            3 => State::Unmapped,
            4 => State::Foreign,
            _ => State::InUse,
        };
        let word = |at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let asked_high = u16::from_ne_bytes([bytes[2], bytes[3]]);
        let (marks, units) = (Marks::default(), word(4));
        Self { state, marks, asked_high, units, left: word(8), right: word(12) }
    }

    /// Notes what a run in use was asked for with, for a large block, and which heap it belongs to, 0 for
    /// none. Links are not needed meanwhile.
    pub(crate) fn note(&mut self, bytes: usize, heap: u32) {
        debug_assert!((bytes as u64) < 1 << (LEFT_BITS + u16::BITS));
        self.marks = self.marks.of_mapping();
        self.left = bytes as u32;
        self.asked_high = (bytes as u64 >> LEFT_BITS) as u16;
        self.right = heap;
    }

    /// Writes a record, but for what is known of the unit's mapping.
    ///
    /// # Safety
    /// The record is valid, and the caller's.
    pub(crate) unsafe fn replace(record: *mut Self, run: Self) {
        // SAFETY: the caller's.
        unsafe { *record = Self { marks: (*record).marks.of_mapping(), ..run } }
    }

    /// The bytes that [`Run::note`] noted; 0 before.
    pub(crate) fn asked(&self) -> usize {
        (self.left as u64 | (self.asked_high as u64) << LEFT_BITS) as usize
    }

    /// Bytes that may be used of the large block of no heap that this record is of. For its owner, too, while somebody who has
    /// the lock of the page heap writes down what he knows of the tail: that is not read.
    ///
    /// # Safety
    /// The record is valid, and nobody resizes the block.
    pub(crate) unsafe fn usable(record: *const Self, page: usize) -> usize {
        // SAFETY: the caller's.
        let (left, asked_high) = unsafe { ((*record).left, (*record).asked_high) };
        large_bytes(Self { left, asked_high, ..Self::default() }.asked(), page)
    }

    /// The heap that [`Run::note`] noted; 0 before.
    pub(crate) fn heap(&self) -> u32 {
        self.right
    }
}

/// What is known of the OS pages of a run behind the end of its large block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub(crate) enum Tail {
    #[default]
    New,
    /// The block had its size when somebody last looked.
    Digests,
    /// They are not resident.
    Gone,
}

/// What is known beside: bits. Only whoever has the lock of the page heap reads or writes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub(crate) struct Marks(u8);

impl Marks {
    /// Of a run in use, in its first record: [`Tail`].
    const TAIL: u8 = 0b11;
    /// Of a run in use, in its first record: it was handed out as zeros.
    const ZEROS: u8 = 1 << 2;
    /// Of each unit: its pages moved there, so it lies in a mapping of the kernel's that is not that of the region.
    const MOVED: u8 = 1 << 3;
    /// Of each such unit: it is the first of its mapping.
    const BEGINS: u8 = 1 << 4;

    /// Only what stays while runs come and go.
    fn of_mapping(self) -> Self {
        Self(self.0 & (Self::MOVED | Self::BEGINS))
    }

    fn with(self, bit: u8, set: bool) -> Self {
        Self(if set { self.0 | bit } else { self.0 & !bit })
    }

    pub fn tail(self) -> Tail {
        match self.0 & Self::TAIL {
            0 => Tail::New,
            1 => Tail::Digests,
            _ => Tail::Gone,
        }
    }

    pub fn with_tail(self, tail: Tail) -> Self {
        Self(self.0 & !Self::TAIL | tail as u8)
    }

    pub fn zeros(self) -> bool {
        self.0 & Self::ZEROS != 0
    }

    pub fn with_zeros(self) -> Self {
        self.with(Self::ZEROS, true)
    }

    pub fn moved(self) -> bool {
        self.0 & Self::MOVED != 0
    }

    pub fn begins(self) -> bool {
        self.0 & Self::BEGINS != 0
    }

    pub fn with_mapping(self, moved: bool, begins: bool) -> Self {
        self.with(Self::MOVED, moved).with(Self::BEGINS, begins)
    }
}

/// What a run is used for. All zero bytes are a unit that was never used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub(crate) enum State {
    #[default]
    InUse,
    /// Free, resident, with old contents.
    Dirty,
    /// Free, not resident, reads as zero.
    Clean,
    /// Free, and nothing is mapped there: another mapping may come to lie there.
    Unmapped,
    /// Of no use: another mapping lies there, or did.
    Foreign,
}
