//! Makes a fuzzer's case from any bytes: a platform, and steps of several workers.

use arbitrary::{Arbitrary, Result, Unstructured};

use crate::{FakeOs, LinuxIn, Op};

/// Number of workers.
pub(crate) const WORKERS: usize = 3;
/// Longer programs find no more mistakes, and take longer to read.
const STEPS_MAX: usize = 500;

/// A program for several workers, and the platform that it runs on.
#[derive(Debug)]
pub(crate) struct Case {
    pub platform: Platform,
    /// The steps in turn, each with the number of its worker.
    pub steps: Vec<(usize, Step)>,
}

/// The engine's surroundings and options.
#[derive(Debug)]
pub(crate) struct Platform {
    mode: &'static str,
    page: usize,
    cpus: usize,
    space: usize,
    limit: &'static str,
    check: &'static str,
}

/// A step of one worker, or an event for all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// An operation on blocks.
    Op(Op),
    /// The program is idle for this many milliseconds.
    Idle(u32),
    /// A fork, in the parent or in the child.
    Fork { child: bool },
    /// The thread returns its cache.
    Leave,
    /// Makes a heap with a limit in bytes, and allocates from it from now on.
    NewHeap { limit: usize },
    /// Allocates from another heap from now on, or from none.
    Enter { nth: usize },
    /// Deletes a heap with all of its blocks.
    DeleteHeap { nth: usize },
    /// Refuses `calls` calls of the operating system, after `after` more calls.
    Refuse { after: usize, calls: usize },
    /// Refuses no more calls.
    Heal,
    /// Checks blocks and the heap.
    Check,
}

impl Platform {
    pub fn fake(&self) -> FakeOs {
        let os = FakeOs::default().page(self.page).cpus(self.cpus).space(self.space);
        os.mode(self.mode).environment("EBB_LIMIT", self.limit).environment("EBB_CHECK", self.check)
    }

    /// The real operating system, in `mode` or else in the case's own mode.
    pub fn linux(&self, mode: Option<&'static str>) -> LinuxIn {
        let os = LinuxIn::new(mode.unwrap_or(self.mode)).cpus(self.cpus).space(self.space << 6);
        os.environment("EBB_LIMIT", self.limit)
    }
}

impl<'a> Arbitrary<'a> for Platform {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(Self {
            mode: u.choose(&["slot", "thread"])?,
            page: *u.choose(&[4096, 4096, 16384, 65536])?,
            cpus: u.int_in_range(1..=3)?,
            // Small, since making the memory takes most of a short program's time.
            space: *u.choose(&[8 << 20, 8 << 20, 8 << 20, 16 << 20])?,
            limit: u.choose(&["", "", "", "2M", "5M"])?,
            check: u.choose(&["", "", "", "1"])?,
        })
    }
}

fn size(u: &mut Unstructured) -> Result<usize> {
    let max = match u.int_in_range(0..=31)? {
        0..10 => 64,
        10..18 => 1024,
        18..24 => 8192,
        24..28 => 66_000,
        28..30 => 150_000,
        30 => 1 << 20,
        _ => return Ok(usize::MAX >> u.int_in_range(0..=24)?),
    };
    u.int_in_range(0..=max)
}

fn op(u: &mut Unstructured) -> Result<Op> {
    let nth = u.int_in_range(0..=255)?;
    Ok(match u.int_in_range(0..=31)? {
        0..8 => Op::Alloc { size: size(u)?, align: 1 },
        8..11 => Op::Alloc { size: size(u)?, align: 1 << u.int_in_range(0..=21)? },
        11..14 => Op::AllocZeroed { size: size(u)? },
        14..18 => Op::Free { nth },
        18..22 => Op::FreeSized { nth },
        22..25 => Op::Realloc { nth, size: size(u)? },
        25 => Op::Resize { nth, size: size(u)? },
        26 => Op::Remap { nth, size: size(u)? },
        27 => Op::UsableSize { nth },
        28 => Op::Trim,
        29 => Op::Absurd { nth, pick: u.int_in_range(0..=0xffff)? },
        _ => Op::HandOver { nth },
    })
}

impl<'a> Arbitrary<'a> for Step {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(match u.int_in_range(0..=63)? {
            0 => Self::Idle(u.int_in_range(0..=2000)?),
            1 => Self::Fork { child: u.arbitrary()? },
            2 => Self::Leave,
            3 => Self::NewHeap { limit: if u.arbitrary()? { usize::MAX } else { size(u)? } },
            4 => Self::Enter { nth: u.int_in_range(0..=3)? },
            5 => Self::DeleteHeap { nth: u.int_in_range(0..=3)? },
            6 => Self::Refuse { after: u.int_in_range(0..=3)?, calls: u.int_in_range(1..=4)? },
            7 => Self::Heal,
            8 => Self::Check,
            // Most steps are operations; `Case` repeats some, which fills spans and caches.
            _ => Self::Op(op(u)?),
        })
    }
}

impl<'a> Arbitrary<'a> for Case {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let platform = u.arbitrary()?;
        let mut steps = Vec::new();
        while !u.is_empty() && steps.len() < STEPS_MAX {
            let (worker, step) = (u.int_in_range(0..=WORKERS - 1)?, u.arbitrary()?);
            let times = if u.ratio(1, 8)? { u.int_in_range(2..=100)? } else { 1 };
            steps.extend(std::iter::repeat_n((worker, step), times));
        }
        Ok(Self { platform, steps })
    }
}
