//! The page heap's record of a run. The region has a table of them, which `page_heap/`
//! maintains.

/// The page heap's record of a unit. Those of a run's first and last unit are current. The records
/// between them may hold anything.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Run {
    pub(crate) state: RunState,
    pub(crate) flags: UnitFlags,
    /// The upper 16 of the 48 bits of a large block's requested size in bytes. Of a paged unit: its
    /// OS pages in use, a bit each. Of a free run: when it was freed (`free_runs.rs`).
    pub(crate) asked_high: u16,
    /// Units in the run. Valid in the first and the last record of a run.
    pub(crate) units: u32,
    /// Of a free run: its children in the tree of free runs, each by its first unit, 0 for none. Of
    /// a run in use: `left` has the lower bits of a large block's requested size, and `right` the
    /// heap. Of an open unit: those before and after it (`gap_lists.rs`). Of one in which a medium
    /// block begins: `left` has its size.
    pub(crate) left: u32,
    pub(crate) right: u32,
}

/// Bits of `left`.
const LEFT_BITS: u32 = u32::BITS;

/// Usable bytes of a large block of no heap that was requested with this size. These are whole OS
/// pages of `page` bytes, not all of its units, since the rest may be purged.
pub(crate) fn large_bytes(size: usize, page: usize) -> usize {
    size.max(1).checked_next_multiple_of(page).unwrap_or(usize::MAX)
}

impl Run {
    /// Reads a record of another process, which may have been changing. An invalid state counts as
    /// in use.
    pub(crate) fn from_bytes(bytes: &[u8; size_of::<Self>()]) -> Self {
        let state = match bytes[0] {
            1 => RunState::Dirty,
            2 => RunState::Clean,
            3 => RunState::Unmapped,
            4 => RunState::Foreign,
            _ => RunState::InUse,
        };
        let word = |at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let asked_high = u16::from_ne_bytes([bytes[2], bytes[3]]);
        let (flags, units) = (UnitFlags::default(), word(4));
        Self { state, flags, asked_high, units, left: word(8), right: word(12) }
    }

    /// Records the requested size of a large block in a run in use, and the heap that the run
    /// belongs to, 0 for none. A run in use needs no tree links.
    pub(crate) fn note(&mut self, bytes: usize, heap: u32) {
        debug_assert!((bytes as u64) < 1 << (LEFT_BITS + u16::BITS));
        self.flags = self.flags.of_memory();
        self.left = bytes as u32;
        self.asked_high = (bytes as u64 >> LEFT_BITS) as u16;
        self.right = heap;
    }

    /// Writes a record, but keeps the flags that are of the unit's memory.
    ///
    /// # Safety
    /// `record` is valid, and no other thread accesses it.
    pub(crate) unsafe fn replace(record: *mut Self, run: Self) {
        // SAFETY: the caller guarantees that the record is valid and not accessed elsewhere.
        unsafe { *record = Self { flags: (*record).flags.of_memory(), ..run } }
    }

    /// The size that [`Run::note`] recorded; 0 before.
    pub(crate) fn asked(&self) -> usize {
        (self.left as u64 | (self.asked_high as u64) << LEFT_BITS) as usize
    }

    /// [`Run::asked`] of a record of a run in use. Its owner may call this without a lock: a thread
    /// with the lock of the page heap may write `flags` meanwhile, which is not read here.
    ///
    /// # Safety
    /// The record is valid, and the block is not resized meanwhile.
    pub(crate) unsafe fn asked_at(record: *const Self) -> usize {
        // SAFETY: the caller guarantees that the record is valid and that no thread writes these
        // fields.
        let (left, asked_high) = unsafe { ((*record).left, (*record).asked_high) };
        Self { left, asked_high, ..Self::default() }.asked()
    }

    /// [`Run::heap`] of a record of a run in use, as by [`Run::asked_at`].
    ///
    /// # Safety
    /// As for [`Run::asked_at`].
    pub(crate) unsafe fn heap_at(record: *const Self) -> u32 {
        // SAFETY: as in `asked_at`.
        unsafe { (*record).right }
    }

    /// The requested size of the medium block that begins in the unit of this record. Its owner may
    /// call this without a lock, as for [`Run::asked_at`].
    ///
    /// # Safety
    /// As for [`Run::asked_at`].
    pub(crate) unsafe fn medium_asked_at(record: *const Self) -> usize {
        // SAFETY: as in `asked_at`.
        unsafe { (*record).left as usize }
    }

    /// When this free run was freed, by the clock of `free_runs.rs`.
    pub(crate) fn freed_at(&self) -> u16 {
        self.asked_high
    }

    /// The heap that [`Run::note`] recorded; 0 before.
    pub(crate) fn heap(&self) -> u32 {
        self.right
    }
}

/// State of the tail of a large block's run: the OS pages behind the block's end. Or that of the
/// free pages of a paged unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub(crate) enum Tail {
    #[default]
    New,
    /// A round has seen the block with its current size.
    Seen,
    /// The tail is not resident. If the unit is paged, its free pages read as zero.
    NotResident,
    /// The kernel refused to purge some of it.
    Refused,
}

/// Flags of a unit. Only a thread with the lock of the page heap reads or writes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub(crate) struct UnitFlags(u8);

impl UnitFlags {
    /// In the first record of a run in use: its [`Tail`]. Of a paged unit: that of its free pages.
    const TAIL: u8 = 0b11;
    /// Pages moved to this unit, so it lies in a mapping of its own and not in that of the region.
    const MOVED: u8 = 1 << 2;
    /// Such a unit is the first of its mapping.
    const BEGINS: u8 = 1 << 3;
    /// A huge page begins at this unit.
    const HUGE: u8 = 1 << 4;

    /// A paged unit is in a list of open units.
    const OPEN: u8 = 1 << 5;
    /// The kernel may still give that huge page to the run in use there.
    const ADVISED: u8 = 1 << 6;
    /// A long run had that huge page, and nothing of it was purged since.
    const LENT: u8 = 1 << 7;

    /// Keeps only the flags that outlast runs.
    fn of_memory(self) -> Self {
        Self(self.0 & !(Self::TAIL | Self::OPEN))
    }

    fn with(self, bit: u8, set: bool) -> Self {
        Self(if set { self.0 | bit } else { self.0 & !bit })
    }

    pub fn tail(self) -> Tail {
        match self.0 & Self::TAIL {
            0 => Tail::New,
            1 => Tail::Seen,
            2 => Tail::NotResident,
            _ => Tail::Refused,
        }
    }

    pub fn with_tail(self, tail: Tail) -> Self {
        Self(self.0 & !Self::TAIL | tail as u8)
    }

    pub fn moved(self) -> bool {
        self.0 & Self::MOVED != 0
    }

    pub fn begins(self) -> bool {
        self.0 & Self::BEGINS != 0
    }

    pub fn huge(self) -> bool {
        self.0 & Self::HUGE != 0
    }

    pub fn open(self) -> bool {
        self.0 & Self::OPEN != 0
    }

    pub fn with_open(self, open: bool) -> Self {
        self.with(Self::OPEN, open)
    }

    pub fn with_huge(self, huge: bool) -> Self {
        self.with(Self::HUGE, huge)
    }

    pub fn advised(self) -> bool {
        self.0 & Self::ADVISED != 0
    }

    pub fn with_advised(self, advised: bool) -> Self {
        self.with(Self::ADVISED, advised)
    }

    pub fn lent(self) -> bool {
        self.0 & Self::LENT != 0
    }

    pub fn with_lent(self, lent: bool) -> Self {
        self.with(Self::LENT, lent)
    }

    pub fn with_mapping(self, moved: bool, begins: bool) -> Self {
        self.with(Self::MOVED, moved).with(Self::BEGINS, begins)
    }
}

/// The use of a run. All zero bytes are a unit that was never used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub(crate) enum RunState {
    #[default]
    InUse,
    /// Free and resident, with old contents.
    Dirty,
    /// Free, mapped, not resident; reads as zero.
    Clean,
    /// Free and not mapped. A foreign mapping may come to lie there.
    Unmapped,
    /// Given up, because a foreign mapping lies there, or did.
    Foreign,
}
