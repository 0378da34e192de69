//! What a fuzzer runs: a platform and steps, made from any bytes whatever.

use arbitrary::{Arbitrary, Result, Unstructured};

use crate::{FakeOs, LinuxIn, Op};

/// How many workers there are.
pub(crate) const WORKERS: usize = 3;
/// The most steps: longer programs find no more, and take longer to read.
const STEPS_MOST: usize = 500;

/// A program for several workers, and what it runs on.
#[derive(Debug)]
pub(crate) struct Case {
    pub platform: Platform,
    /// Who does what, in turn.
    pub steps: Vec<(usize, Step)>,
}

/// What the engine is told of its surroundings.
#[derive(Debug)]
pub(crate) struct Platform {
    mode: &'static str,
    page: usize,
    cpus: usize,
    space: usize,
    limit: &'static str,
    check: &'static str,
}

/// What one worker does, or all of them suffer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// An operation on blocks.
    Op(Op),
    /// Time passes, in milliseconds, and the program has nothing to do.
    Idle(u32),
    /// A fork, in the parent or in the child.
    Fork { child: bool },
    /// The thread gives its cache up.
    Leave,
    /// A heap of so many bytes at most is made, and used.
    NewHeap { limit: usize },
    /// Another heap is used, or none.
    Enter { nth: usize },
    /// A heap is deleted, and all blocks in it.
    DeleteHeap { nth: usize },
    /// Calls of the operating system are refused, from the next but `after` on.
    Refuse { after: usize, calls: usize },
    /// No more are.
    Heal,
    /// Everything is looked at.
    Look,
}

impl Platform {
    pub fn fake(&self) -> FakeOs {
        let os = FakeOs::default().page(self.page).cpus(self.cpus).space(self.space);
        os.mode(self.mode).environment("EBB_LIMIT", self.limit).environment("EBB_CHECK", self.check)
    }

    /// The real one, in that mode or another one.
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
            // Little: most of a short program's time goes into making it.
            space: *u.choose(&[8 << 20, 8 << 20, 8 << 20, 16 << 20])?,
            limit: u.choose(&["", "", "", "2M", "5M"])?,
            check: u.choose(&["", "", "", "1"])?,
        })
    }
}

fn size(u: &mut Unstructured) -> Result<usize> {
    let most = match u.int_in_range(0..=31)? {
        0..10 => 64,
        10..18 => 1024,
        18..24 => 8192,
        24..28 => 66_000,
        28..30 => 150_000,
        30 => 1 << 20,
        _ => return Ok(usize::MAX >> u.int_in_range(0..=24)?),
    };
    u.int_in_range(0..=most)
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
            8 => Self::Look,
            // The same again and again fills spans and caches.
            _ => Self::Op(op(u)?),
        })
    }
}

impl<'a> Arbitrary<'a> for Case {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let platform = u.arbitrary()?;
        let mut steps = Vec::new();
        while !u.is_empty() && steps.len() < STEPS_MOST {
            let (who, step) = (u.int_in_range(0..=WORKERS - 1)?, u.arbitrary()?);
            let times = if u.ratio(1, 8)? { u.int_in_range(2..=100)? } else { 1 };
            steps.extend(std::iter::repeat_n((who, step), times));
        }
        Ok(Self { platform, steps })
    }
}
