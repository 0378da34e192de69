//! The beacon: tells another process where an engine's tables are and how to read them.
//!
//! `ebb why` needs no symbols and stops nothing. The beacon lies in place of the span record of
//! unit 0, which is never handed out, so it costs no memory. The table of spans begins a mapping
//! of its own. So a reader that looks at the start of each anonymous mapping of a process finds
//! the beacons of all engines: preloaded, linked or stripped.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use crate::backend::region::{Region, RegionAddresses, TABLES};
use crate::backend::span::Span;
use crate::frontend::slab::{SLAB_SHIFT, used_bytes};
use crate::platform::os::Os;
use crate::size_class::{CLASSES, UNIT, UNIT_SHIFT};

const MAGIC: u64 = u64::from_ne_bytes(*b"ebbeacon");
/// Version of the layout, to be raised with changes that leave all sizes in [`Shape`] as they are.
const LAYOUT: u32 = 11;

/// The record at the start of the table of spans.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Beacon {
    // These three fields are the same in all versions, so that a reader recognises other versions.
    magic: u64,
    shape: Shape,
    version: [u8; 16],
    // The other fields may change.
    mode: [u8; 8],
    /// Bytes of an OS page.
    pub(crate) page: usize,
    pub(crate) places: RegionAddresses,
    /// Number of slabs of virtual CPUs.
    pub(crate) slabs: usize,
    /// Address of the record of threads' slabs.
    pub(crate) thread_slabs_at: usize,
    pub(crate) careful: CarefulAddresses,
    pub(crate) profile: ProfileAddresses,
}

/// Addresses of the state of check mode, harden mode and sampling, of the limit, and of huge pages.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct CarefulAddresses {
    /// The safety mode: a word.
    pub safety_mode_at: usize,
    /// The memory of the check table.
    pub chunks_at: [usize; 3],
    /// The counts of blocks in the quarantine of check mode.
    pub held_back_at: usize,
    /// Two words: address and bytes of sampled blocks and their records.
    pub sampled_at: usize,
    /// The limit in units: a word, 0 for none.
    pub limit_at: usize,
    /// Two words: the number of huge pages, and the last answer to a run that could have had one.
    pub huge_at: [usize; 2],
}

/// Addresses of the state of the heap profile.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ProfileAddresses {
    /// `ShownProfile`, in `profile/table.rs`; 0 if this build has no profiles.
    pub shown_at: usize,
    /// The memory of the table; that of stacks and counts first.
    pub memory_at: [usize; 4],
    /// The word that has the address of the filter.
    pub filter_at: usize,
    /// The word by which the hot path of allocations is open, if it is not 0.
    pub hot_area_at: usize,
}

/// Layout and record sizes, in which reader and writer must agree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
struct Shape([u32; 8]);

impl Shape {
    const OURS: Self = Self([
        LAYOUT,
        TABLES[1] as u32,
        TABLES[2] as u32,
        TABLES[3] as u32,
        // The layout of a slab is not in any record's size.
        SLAB_SHIFT | (used_bytes() as u32) << 8,
        CLASSES as u32,
        UNIT_SHIFT,
        size_of::<usize>() as u32,
    ]);
}

const _: () = assert!(size_of::<Beacon>() <= size_of::<Span>());

/// The version of an engine that this version cannot read.
#[derive(Clone, Copy, Debug)]
pub struct OtherVersion([u8; 16]);

impl OtherVersion {
    /// The version as text.
    pub fn version(&self) -> &str {
        text(&self.0)
    }
}

impl Beacon {
    /// Bytes of a beacon.
    pub const SIZE: usize = size_of::<Self>();

    /// Decodes memory at address `at` of another process. Returns `None` if it is not a beacon.
    pub fn read(bytes: &[u8; Self::SIZE], at: usize) -> Option<Result<Self, OtherVersion>> {
        // SAFETY: the length is that of a beacon, of which any bytes are valid.
        let beacon = unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() };
        if beacon.magic != MAGIC {
            return None;
        }
        if beacon.shape != Shape::OURS {
            return Some(Err(OtherVersion(beacon.version)));
        }
        // A copy of a beacon at another address does not count.
        let is_valid = beacon.page.is_power_of_two() && (4096..=UNIT).contains(&beacon.page);
        (beacon.places.spans == at && is_valid).then_some(Ok(beacon))
    }

    /// The version of the engine that wrote the beacon.
    pub fn version(&self) -> &str {
        text(&self.version)
    }

    /// The engine's mode: "percpu", "thread" or "slot".
    pub fn mode(&self) -> &str {
        text(&self.mode)
    }

    /// Makes the beacon of an engine in this process.
    pub(crate) fn new(
        os: &impl Os,
        places: RegionAddresses,
        mode: &str,
        slabs: usize,
        thread_slabs_at: usize,
        careful: CarefulAddresses,
        profile: ProfileAddresses,
    ) -> Self {
        let page = os.page_size();
        let (mode, version) = (padded(mode), padded(crate::figures::VERSION));
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
            profile,
        }
    }

    /// Writes the beacon into the table of spans.
    ///
    /// # Safety
    /// The region's first units are committed, and no other thread writes a beacon there.
    pub(crate) unsafe fn light(self, region: &Region) {
        let beacon = region.span(0).cast::<MaybeUninit<Self>>();
        // SAFETY: the caller guarantees that the record is committed and not in use; a beacon fits
        // into it. The magic number is written last, so that no reader sees half a beacon.
        unsafe {
            beacon.write(MaybeUninit::new(Self { magic: 0, ..self }));
            fence(Ordering::Release);
            (*beacon.cast::<AtomicU64>()).store(self.magic, Ordering::Release);
        }
    }
}

/// Text as bytes, cut or padded with zeros.
fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    let length = text.len().min(N);
    bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
    bytes
}

/// Bytes up to the first zero as text: "?" if it has other than plain characters, by which another
/// process could control a terminal.
fn text(bytes: &[u8]) -> &str {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let is_plain = bytes[..end].iter().all(u8::is_ascii_graphic);
    core::str::from_utf8(&bytes[..end]).ok().filter(|_| is_plain).unwrap_or("?")
}
