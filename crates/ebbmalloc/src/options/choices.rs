//! The values that each option may have, the words for them, and their meaning.

use core::num::NonZeroU32;

use super::parsing::{bytes, is_off, is_on, number, percentage, position};

/// Declares an option's type: its values, the words for each, and their meaning.
macro_rules! choices {
    ($(#[$meta:meta])* $name:ident {
        $($(#[doc = $doc:literal])+ $variant:ident = $($word:literal)|+,)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name { $($(#[doc = $doc])+ $variant,)+ }

        impl $name {
            pub(super) fn parse(word: &[u8]) -> Option<Self> {
                // Parallel to the words.
                const VALUES: &[$name] = &[$($({ let _ = $word; $name::$variant }),+),+];
                VALUES.get(position(Self::EXPECTED, word)?).copied()
            }

            pub(super) const EXPECTED: &str = concat!($($("|", $word),+),+);
            pub(super) const HELP: &[(&str, &str)] =
                &[$((concat!($("|", $word),+), concat!($($doc),+))),+];
        }
    };
}

choices! {
    /// Which front end serves small blocks.
    ModeChoice {
        /// The best that works here: percpu; else thread for the first 4 threads per CPU and slot
        /// for the others.
        Auto = "auto",
        /// A cache for each virtual CPU, by restartable sequences. Without them, as `auto`.
        PerCpu = "percpu",
        /// A cache for each thread, emptied when the thread exits.
        Thread = "thread",
        /// One cache per CPU, each behind a try-lock; any thread may use any of them.
        Slot = "slot",
    }
}

choices! {
    /// Whether statistics are kept and printed when the program exits.
    StatsChoice {
        /// Prints nothing.
        Off = "0",
        /// Statistics as text on standard error, then where resident memory is (`docs/why.md`).
        Text = "1",
        /// Statistics as one line of JSON on standard error.
        Json = "json",
        /// Statistics as OpenMetrics text, which Prometheus reads, on standard error.
        OpenMetrics = "openmetrics",
        /// Statistics in the older text format of Prometheus, which can be appended to other
        /// metrics, on standard error.
        Prometheus = "prometheus",
    }
}

choices! {
    /// Whether a thread of the engine returns unused memory to the kernel.
    ScavengerChoice {
        /// Starts where several threads allocate, once 4 MiB are in use. Where only the first of
        /// several allocates, once 32 MiB are free and resident, or refaulted.
        Auto = "auto" | "1",
        /// Never starts: memory returns to the kernel only while the program allocates or frees,
        /// and when it calls `ebb_idle`.
        Off = "0",
    }
}

choices! {
    /// Whether memory for blocks up to 4 KiB, and from 4 MiB on, is backed by huge pages of 2 MiB.
    HugeChoice {
        /// Where the heap grows, once 16 MiB are in use, while those that it touches first cost at
        /// most 1/32 of the time more than small pages do. Blocks from 4 MiB on have 64 MiB: what a
        /// program touches one page of may become resident whole.
        Auto = "auto" | "1",
        /// Where the heap grows, once 16 MiB are in use, whatever they take and however many.
        Always = "always",
        /// Never.
        Never = "never" | "0",
    }
}

/// The purge delay: after it, half of the free memory that was not needed meanwhile is purged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DelayChoice {
    /// 200 ms (`USUAL_DELAY_MS`).
    Usual,
    Ms(u32),
}

impl DelayChoice {
    pub(super) fn parse(word: &[u8]) -> Option<Self> {
        if word.is_empty() || word == b"auto" {
            return Some(Self::Usual);
        }
        let (digits, factor) = match word {
            [digits @ .., b'm', b's'] => (digits, 1),
            [digits @ .., b's'] => (digits, 1000),
            _ => (word, 1),
        };
        let ms = number(digits)?.checked_mul(factor)?;
        (ms <= Self::MS_MAX).then_some(Self::Ms(ms as u32))
    }

    /// A day.
    const MS_MAX: u64 = 86_400_000;
    pub(super) const EXPECTED: &str = "|auto|200ms|10s, 86400s at most";
    pub(super) const HELP: &[(&str, &str)] = &[
        (
            "|auto|200ms",
            "Half of what was not needed for 200 ms goes, and so on. Without a scavenger, memory \
             goes as the program frees: the less there is, the later. It stays while page faults \
             for what went take over 1/32 of the time.",
        ),
        (
            "|500|500ms|10s",
            "The same for another time; milliseconds without a unit. Page faults count for more, \
             or less, in proportion.",
        ),
        ("|0ms", "Free runs go at once."),
    ];
}

choices! {
    /// Whether a program prints at start which front end serves it.
    ExplainChoice {
        /// Prints nothing.
        Off = "0",
        /// Prints one line on standard error: the mode, the reason, and the other modes that would
        /// work.
        On = "1",
    }
}

choices! {
    /// Whether each block is checked.
    CheckChoice {
        /// No.
        Off = "0",
        /// Mistakes stop the program with a report; blocks still held at exit are listed
        /// (`docs/check.md`).
        On = "1",
        /// As `1`, without the list at exit.
        NoLeaks = "noleaks",
    }
}

choices! {
    /// Whether mistakes are made hard to exploit.
    HardenChoice {
        /// No.
        Off = "0",
        /// Random order of blocks, late reuse, zeroed free blocks and guard pages; mistakes that
        /// are noticed stop the program (`docs/harden.md`).
        On = "1",
    }
}

/// Whether blocks are sampled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SampleChoice {
    /// No block is sampled.
    Off,
    /// One in this many blocks is, on average.
    OneOf(NonZeroU32),
}

impl SampleChoice {
    pub(crate) const fn one_of(mean: u32) -> Self {
        match NonZeroU32::new(mean) {
            Some(mean) => Self::OneOf(mean),
            None => Self::Off,
        }
    }

    pub(super) fn parse(word: &[u8]) -> Option<Self> {
        if is_off(word) {
            return Some(Self::Off);
        }
        number(word)?.try_into().ok().map(Self::one_of)
    }

    pub(super) const EXPECTED: &str = "|0|5000";
    pub(super) const HELP: &[(&str, &str)] = &[
        ("|0", "No."),
        (
            "|5000|1000",
            "Samples one in N of the blocks that refill caches, on average, at most one per \
             refill. `1`, which is not `on` here, samples every block while slots are left.",
        ),
    ];
}

/// Whether the heap is profiled from the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProfileChoice {
    /// It is not.
    Off,
    /// A block is sampled each 512 KiB, on average.
    Usual,
    /// A block is sampled each time that this many bytes were allocated, on average; at most 64
    /// MiB.
    Mean(NonZeroU32),
}

impl ProfileChoice {
    pub(crate) const fn mean(mean_bytes: u32) -> Self {
        match NonZeroU32::new(mean_bytes) {
            Some(mean_bytes) => Self::Mean(mean_bytes),
            None => Self::Off,
        }
    }

    pub(super) fn parse(word: &[u8]) -> Option<Self> {
        match word {
            _ if is_off(word) => Some(Self::Off),
            _ if is_on(word) => Some(Self::Usual),
            _ => bytes(word).map(|mean_bytes| Self::mean(mean_bytes.min(u32::MAX as u64) as u32)),
        }
    }

    pub(super) const EXPECTED: &str = "|0|1|512K";
    pub(super) const HELP: &[(&str, &str)] = &[
        ("|0", "No."),
        ("|1", "Samples a block each 512 KiB of allocations, on average."),
        ("|64K|1M|100000", "As `1`, for another mean number of bytes, at most 64M."),
    ];
}

/// When a process writes its heap profile to a file by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProfileAtChoice {
    /// Never, unless a directory is given.
    Never,
    /// When it exits.
    Exit,
    /// Whenever it holds more memory than before, by a sixteenth.
    Peak,
    /// Once, when it holds this percentage of its limit.
    Limit(u8),
    /// On this signal.
    Signal(u8),
}

impl ProfileAtChoice {
    pub(super) fn parse(word: &[u8]) -> Option<Self> {
        match word {
            _ if is_off(word) => Some(Self::Never),
            b"exit" => Some(Self::Exit),
            b"peak" => Some(Self::Peak),
            b"signal:USR1" => Some(Self::Signal(10)),
            b"signal:USR2" => Some(Self::Signal(12)),
            b"signal:HUP" => Some(Self::Signal(1)),
            _ => {
                if let Some(digits) = word.strip_prefix(b"signal:") {
                    let signal = number(digits)?;
                    return (1..=64).contains(&signal).then_some(Self::Signal(signal as u8));
                }
                percentage(word.strip_prefix(b"limit:")?.strip_suffix(b"%")?).map(Self::Limit)
            }
        }
    }

    pub(super) const EXPECTED: &str = "|exit|peak|limit:90%|signal:USR2";
    pub(super) const HELP: &[(&str, &str)] = &[
        ("|0", "Never, unless `EBB_PROFILE_TO` is set: then at exit."),
        ("|exit", "When the process exits: `ebb.PID.exit.heap`."),
        (
            "|peak",
            "When what the program holds, as sampled, exceeds the last peak by a sixteenth: \
             `ebb.PID.peak.heap`, which is replaced.",
        ),
        (
            "|limit:90%",
            "Once, when a sampled allocation finds this share taken: of `EBB_LIMIT` by ebbmalloc; \
             of the memory limit of a control group of the process, or of the machine's memory, \
             by all that counts there but caches of files. `ebb.PID.limit.heap`.",
        ),
        (
            "|signal:USR2|signal:HUP|signal:12",
            "On each such signal, at the next allocation of any thread: `ebb.PID.1.heap`, then 2.",
        ),
    ];
}

/// A directory or file that is named when it is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathChoice {
    /// It is not given.
    Unset,
    /// The environment or `ebb_options` has it.
    Given,
    /// The program's code has it.
    Path(&'static str),
}

impl PathChoice {
    pub(super) fn parse(word: &[u8]) -> Option<Self> {
        Some(if word.is_empty() { Self::Unset } else { Self::Given })
    }

    pub(super) const EXPECTED: &str = "|/var/tmp/%p";
    pub(super) const HELP: &[(&str, &str)] = &[
        ("|", "The default."),
        (
            "|/var/tmp/%n.%p",
            "This path, at most 450 bytes, whose directories exist. `%p` stands for the number of \
             the process, `%n` for the name of its program.",
        ),
    ];
}

/// The most memory that blocks may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitChoice {
    /// No limit.
    None,
    /// A limit in bytes.
    Bytes(u64),
    /// A limit in percent of the control group's memory limit, or of the machine's memory.
    Percent(u8),
}

impl LimitChoice {
    /// A lower limit is probably a number whose suffix was forgotten: no program gets far with it.
    const MIN_BYTES: u64 = 1 << 20;

    pub(crate) const fn bytes(bytes: u64) -> Self {
        assert!(bytes >= Self::MIN_BYTES, "a limit is 1 MiB at least");
        Self::Bytes(bytes)
    }

    pub(crate) const fn percent(percent: u8) -> Self {
        assert!(percent >= 1 && percent <= 100, "a percentage is from 1 to 100");
        Self::Percent(percent)
    }

    pub(super) fn parse(word: &[u8]) -> Option<Self> {
        if is_off(word) {
            return Some(Self::None);
        }
        if let Some(digits) = word.strip_suffix(b"%") {
            return percentage(digits).map(Self::Percent);
        }
        let bytes = bytes(word)?;
        (bytes >= Self::MIN_BYTES).then_some(Self::Bytes(bytes))
    }

    pub(super) const EXPECTED: &str = "|512M|2GiB|75%, 1M at least";
    pub(super) const HELP: &[(&str, &str)] = &[
        ("|0", "No limit."),
        ("|512M|1.5GiB|2000000", "Bytes, at least 1M."),
        (
            "|75%",
            "A share of the memory limit of the process's control group, or of the machine's \
             memory.",
        ),
    ];
}
