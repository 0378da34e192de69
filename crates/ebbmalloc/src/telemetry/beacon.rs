//! The beacon: where another process finds a heap, and how to read it, without symbols and without
//! stopping anything (`ebb why`).
//!
//! It lies where the record of unit 0's span would: unit 0 is never handed out, so it costs nothing. The
//! table of spans begins a mapping of its own, so whoever looks at the beginnings of a process's anonymous
//! mappings finds the beacon of every copy of the engine: preloaded, linked or stripped.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use crate::backend::region::{Region, RegionAddresses, TABLES};
use crate::backend::span::Span;
use crate::frontend::slab::{SLAB_SHIFT, used_bytes};
use crate::platform::os::Os;
use crate::size_class::{CLASSES, UNIT, UNIT_SHIFT};

const MAGIC: u64 = u64::from_ne_bytes(*b"ebbeacon");
/// To be counted up where a reader would misunderstand; sizes speak for themselves.
const LAYOUT: u32 = 6;

/// What lies there.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Beacon {
    // These stay what they are in every version, so that a reader can tell that it is the wrong one.
    magic: u64,
    shape: Shape,
    version: [u8; 16],
    // These may change.
    mode: [u8; 8],
    pub(crate) page: usize,
    pub(crate) places: RegionAddresses,
    /// Caches of virtual CPUs.
    pub(crate) slabs: usize,
    /// Where the record of the slabs of threads lies.
    pub(crate) thread_slabs_at: usize,
    pub(crate) careful: CarefulAddresses,
}

/// Where what is known of blocks lies where each is looked at, or some are.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct CarefulAddresses {
    /// Which care is taken of blocks: a word.
    pub care_at: usize,
    /// What check mode knows, and what it holds back.
    pub chunks_at: [usize; 3],
    pub held_back_at: usize,
    /// Address and bytes of sampled blocks and their records: two words.
    pub sampled_at: usize,
}

/// What a reader must agree on: the layout, and sizes of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
struct Shape([u32; 8]);

impl Shape {
    const OURS: Self = Self([
        LAYOUT,
        TABLES[1] as u32,
        TABLES[2] as u32,
        TABLES[3] as u32,
        // Where stacks lie in a slab has no other size.
        SLAB_SHIFT | (used_bytes() as u32) << 8,
        CLASSES as u32,
        UNIT_SHIFT,
        size_of::<usize>() as u32,
    ]);
}

const _: () = assert!(size_of::<Beacon>() <= size_of::<Span>());

/// A heap that this version cannot read.
#[derive(Clone, Copy, Debug)]
pub struct OtherVersion([u8; 16]);

impl OtherVersion {
    /// The heap's version.
    pub fn version(&self) -> &str {
        text(&self.0)
    }
}

impl Beacon {
    /// Bytes of a beacon.
    pub const SIZE: usize = size_of::<Self>();

    /// Understands what lies at address `at` of some process; `None` where that is no beacon.
    pub fn read(bytes: &[u8; Self::SIZE], at: usize) -> Option<Result<Self, OtherVersion>> {
        // SAFETY: as long as a beacon, of which any bytes are valid.
        let beacon = unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() };
        if beacon.magic != MAGIC {
            return None;
        }
        if beacon.shape != Shape::OURS {
            return Some(Err(OtherVersion(beacon.version)));
        }
        // A copy that lies elsewhere is none.
        let makes_sense = beacon.page.is_power_of_two() && (4096..=UNIT).contains(&beacon.page);
        (beacon.places.spans == at && makes_sense).then_some(Ok(beacon))
    }

    /// The version of the engine that lit it.
    pub fn version(&self) -> &str {
        text(&self.version)
    }

    /// "percpu", "thread" or "slot".
    pub fn mode(&self) -> &str {
        text(&self.mode)
    }

    /// What an engine would light.
    pub(crate) fn new(
        os: &impl Os,
        places: RegionAddresses,
        mode: &str,
        slabs: usize,
        thread_slabs_at: usize,
        careful: CarefulAddresses,
    ) -> Self {
        let page = os.page_size();
        let (mode, version) = (padded(mode), padded(crate::platform::VERSION));
        Self {
            magic: MAGIC,
            shape: Shape::OURS,
            version,
            mode,
            page,
            places,
            slabs,
            thread_slabs_at,
            careful,
        }
    }

    /// Lights it.
    ///
    /// # Safety
    /// The region's first units are committed, and nobody else lights a beacon there.
    pub(crate) unsafe fn light(self, region: &Region) {
        let place = region.span(0).cast::<MaybeUninit<Self>>();
        // SAFETY: the caller's; it fits. The magic number comes last, so that no half of one is seen.
        unsafe {
            place.write(MaybeUninit::new(Self { magic: 0, ..self }));
            fence(Ordering::Release);
            (*place.cast::<AtomicU64>()).store(self.magic, Ordering::Release);
        }
    }
}

fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    let length = text.len().min(N);
    bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
    bytes
}

fn text(bytes: &[u8]) -> &str {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    core::str::from_utf8(&bytes[..end]).unwrap_or("?")
}
