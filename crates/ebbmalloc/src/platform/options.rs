//! Reads the options: environment variables, once at start. Parsing, messages and `docs/options.md`
//! all come from the declarations below.

use core::num::{NonZeroU32, NonZeroU64};

use crate::platform::message::Line;
use crate::platform::os::Os;

/// Whether this build has check mode, harden mode and sampling. Code tests this before it asks for
/// them, so that the compiler leaves them out of other builds.
pub(crate) const CAREFUL: bool = cfg!(feature = "careful");
/// Whether this build has statistics and `EBB_EXPLAIN`. Code tests it as it does [`CAREFUL`].
pub(crate) const TELLING: bool = cfg!(feature = "stats");

/// Whether this build has heap profiles. Code tests it as it does [`CAREFUL`].
pub(crate) const PROFILING: bool = cfg!(feature = "profile");

/// Declares an option's type: its values, the words for each, and their meaning.
macro_rules! choices {
    ($(#[$meta:meta])* $name:ident {
        $($(#[doc = $doc:literal])+ $variant:ident = $($word:literal)|+,)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name { $($(#[doc = $doc])+ $variant,)+ }

        impl $name {
            fn parse(word: &[u8]) -> Option<Self> {
                // Parallel to the words.
                const VALUES: &[$name] = &[$($({ let _ = $word; $name::$variant }),+),+];
                VALUES.get(position(Self::EXPECTED, word)?).copied()
            }

            const EXPECTED: &str = concat!($($("|", $word),+),+);
            const HELP: &[(&str, &str)] = &[$((concat!($("|", $word),+), concat!($($doc),+))),+];
        }
    };
}

/// The index of `word` in `words`, where a bar precedes each word.
#[inline(never)]
fn position(words: &str, word: &[u8]) -> Option<usize> {
    words.as_bytes().split(|&byte| byte == b'|').skip(1).position(|candidate| candidate == word)
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
        Off = "0" | "",
        /// Statistics as text on standard error, then where resident memory is (`docs/why.md`).
        Text = "1",
        /// Statistics as one line of JSON on standard error.
        Json = "json",
        /// Statistics as OpenMetrics text, which Prometheus reads, on standard error.
        OpenMetrics = "openmetrics",
    }
}

choices! {
    /// Whether a thread of the engine returns unused memory to the kernel.
    ScavengerChoice {
        /// Starts where several threads allocate, once 4 MiB are in use. Where there were several,
        /// but only the first allocates, once 32 MiB are free and resident, or refaulted.
        Auto = "auto" | "1",
        /// Never starts: memory returns to the kernel only while the program frees blocks.
        Off = "0" | "off",
    }
}

choices! {
    /// Whether memory for blocks up to 4 KiB is backed by huge pages of 2 MiB.
    HugeChoice {
        /// Where the heap grows, once 16 MiB are in use, while they take at most a thirty-second of
        /// the time more than small pages do.
        Auto = "auto" | "1",
        /// Where the heap grows, once 16 MiB are in use, whatever they take.
        Always = "always",
        /// Never.
        Never = "never" | "0" | "off",
    }
}

choices! {
    /// Whether a program prints at start which front end serves it.
    ExplainChoice {
        /// Prints nothing.
        Off = "0" | "",
        /// Prints one line on standard error: the mode, the reason, and the other modes that would
        /// work.
        On = "1",
    }
}

choices! {
    /// Whether each block is checked.
    CheckChoice {
        /// No.
        Off = "0" | "",
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
        Off = "0" | "",
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
    fn parse(word: &[u8]) -> Option<Self> {
        match word {
            b"" | b"0" => Some(Self::Off),
            digits if digits.iter().all(u8::is_ascii_digit) => {
                let mean: u64 = str::from_utf8(digits).ok()?.parse().ok()?;
                NonZeroU32::new(mean.try_into().ok()?).map(Self::OneOf)
            }
            _ => None,
        }
    }

    const EXPECTED: &str = "|0|5000";
    const HELP: &[(&str, &str)] = &[
        ("|0|", "No."),
        (
            "|5000|1000",
            "Samples one in N of the blocks that refill caches, on average, at most one per \
             refill. `1` samples every block while slots are left.",
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
    /// A block is sampled each time that this many bytes were allocated, on average.
    Mean(NonZeroU64),
}

impl ProfileChoice {
    fn parse(word: &[u8]) -> Option<Self> {
        match word {
            b"" | b"0" => Some(Self::Off),
            b"1" => Some(Self::Usual),
            _ => bytes_of(word).and_then(NonZeroU64::new).map(Self::Mean),
        }
    }

    const EXPECTED: &str = "|0|1|512K";
    const HELP: &[(&str, &str)] = &[
        ("|0|", "No."),
        ("|1", "Samples a block each 512 KiB of allocations, on average."),
        (
            "|64K|1M|100000",
            "As `1`, for another mean number of bytes; K, M and G are powers of 1,024.",
        ),
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
    fn parse(word: &[u8]) -> Option<Self> {
        match word {
            b"" | b"0" => Some(Self::Never),
            b"exit" => Some(Self::Exit),
            b"peak" => Some(Self::Peak),
            b"signal:USR1" => Some(Self::Signal(10)),
            b"signal:USR2" => Some(Self::Signal(12)),
            b"signal:HUP" => Some(Self::Signal(1)),
            _ => {
                if let Some(digits) = word.strip_prefix(b"signal:") {
                    let signal = number_of(digits)?;
                    return (1..=64).contains(&signal).then_some(Self::Signal(signal as u8));
                }
                percent_of(word.strip_prefix(b"limit:")?.strip_suffix(b"%")?).map(Self::Limit)
            }
        }
    }

    const EXPECTED: &str = "|exit|peak|limit:90%|signal:USR2";
    const HELP: &[(&str, &str)] = &[
        ("|0|", "Never, unless `EBB_PROFILE_TO` is set: then at exit."),
        ("|exit", "When the process exits: `ebb.PID.exit.heap`."),
        (
            "|peak",
            "When memory in use or dirty exceeds the last peak by a sixteenth: \
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

/// Whether a directory for heap profiles is given. Set-up reads its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProfileToChoice {
    /// It is the working directory.
    Unset,
    /// It is given.
    Set,
}

impl ProfileToChoice {
    fn parse(word: &[u8]) -> Option<Self> {
        Some(if word.is_empty() { Self::Unset } else { Self::Set })
    }

    const EXPECTED: &str = "|/var/tmp";
    const HELP: &[(&str, &str)] = &[
        ("|", "The working directory."),
        ("|/var/tmp", "This directory, which must exist; at most 450 bytes."),
    ];
}

/// The number that these digits make.
fn number_of(digits: &[u8]) -> Option<u64> {
    let all_digits = digits.iter().all(u8::is_ascii_digit);
    str::from_utf8(digits).ok().filter(|_| all_digits)?.parse().ok()
}

/// A percentage from 1 to 100, by its digits.
fn percent_of(digits: &[u8]) -> Option<u8> {
    number_of(digits).filter(|percent| (1..=100).contains(percent)).map(|percent| percent as u8)
}

/// A number of bytes: digits, and K, M, G or T for powers of 1,024.
fn bytes_of(word: &[u8]) -> Option<u64> {
    let digits = word.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, suffix) = word.split_at(digits);
    let number = number_of(number)?;
    let power = match suffix {
        [] => 0,
        [unit] | [unit, b'i', b'B'] => {
            1 + b"KMGT".iter().position(|prefix| *prefix == unit.to_ascii_uppercase())?
        }
        _ => return None,
    };
    number.checked_mul(1 << (10 * power))
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

    fn parse(word: &[u8]) -> Option<Self> {
        if matches!(word, b"" | b"0") {
            return Some(Self::None);
        }
        if let Some(digits) = word.strip_suffix(b"%") {
            return percent_of(digits).map(Self::Percent);
        }
        let bytes = bytes_of(word)?;
        (bytes >= Self::MIN_BYTES).then_some(Self::Bytes(bytes))
    }

    const EXPECTED: &str = "|512M|2GiB|75%, 1M at least";
    const HELP: &[(&str, &str)] = &[
        ("|0|", "No limit."),
        ("|512M|2GiB|1000000", "Bytes, at least 1M; K, M, G and T are powers of 1,024."),
        (
            "|75%",
            "A share of the memory limit of the process's control group, or of the machine's \
             memory.",
        ),
    ];
}

impl Options {
    /// Whether an option is set that needs [`CAREFUL`].
    pub(crate) fn is_careful(&self) -> bool {
        self.check != CheckChoice::Off
            || self.harden != HardenChoice::Off
            || self.sample != SampleChoice::Off
    }

    /// Whether an option is set that needs [`TELLING`].
    pub(crate) fn is_telling(&self) -> bool {
        self.stats != StatsChoice::Off || self.explain != ExplainChoice::Off
    }
}

/// Declares the options: for each its purpose, field, type, default and variable.
macro_rules! options {
    ($(
        $(#[doc = $doc:literal])+ $field:ident: $kind:ident = $default:ident, $variable:literal;
    )+) => {
        /// The options of a process, from its environment.
        #[derive(Clone, Copy, Debug)]
        pub struct Options { $($(#[doc = $doc])+ pub $field: $kind,)+ }

        impl Options {
            /// All options at their defaults.
            pub const DEFAULT: Self = Self { $($field: $kind::$default,)+ };

            /// Reads the environment. A value that does not parse is named on standard error, and
            /// the default stays.
            pub fn read(os: &impl Os) -> Self {
                let mut options = Self::DEFAULT;
                $(look_up(os, $variable, $kind::EXPECTED, &mut |word| {
                    $kind::parse(word).map(|value| options.$field = value).is_some()
                });)+
                options
            }

            /// For each option its variable, its purpose, and its values: words, a bar before each,
            /// with their meaning.
            pub const TABLE: &[(&str, &str, &[(&str, &str)])] =
                &[$(($variable, concat!($($doc),+), $kind::HELP)),+];
        }
    };
}

options! {
    /// The front end that serves small blocks. Default: `auto`.
    mode: ModeChoice = Auto, "EBB_MODE";
    /// Prints at start which mode is in force, and why. Default: off.
    explain: ExplainChoice = Off, "EBB_EXPLAIN";
    /// Keeps statistics and prints them at exit. Default: off.
    stats: StatsChoice = Off, "EBB_STATS";
    /// Checks every block, for tests: slow. Default: off.
    check: CheckChoice = Off, "EBB_CHECK";
    /// Makes heap mistakes hard to exploit, for production. Ignored if `EBB_CHECK` is set. Default:
    /// off.
    harden: HardenChoice = Off, "EBB_HARDEN";
    /// Gives some blocks a page of their own, where wrong accesses fault (`docs/sampling.md`).
    /// Ignored if `EBB_CHECK` or `EBB_HARDEN` is set. Default: off.
    sample: SampleChoice = Off, "EBB_SAMPLE";
    /// The scavenger: a thread of the engine that returns unused memory to the kernel. Default:
    /// `auto`.
    scavenger: ScavengerChoice = Auto, "EBB_SCAVENGER";
    /// Huge pages for blocks up to 4 KiB: faster to use, and dearer to get on some machines. No
    /// value makes memory resident that only longer blocks use. Default: `auto`.
    huge: HugeChoice = Auto, "EBB_HUGE";
    /// The most memory that blocks may take. Beyond it the engine purges free memory, and then
    /// allocations fail (NULL and ENOMEM). It counts units of 64 KiB, each with 604 bytes of
    /// tables: those of large blocks, those of spans with a block in use or in a cache, and free
    /// ones that are resident. It does not count the slabs of caches, at most 256 KiB for each CPU
    /// or thread, or memory that the engine did not allocate. Default: none.
    limit: LimitChoice = None, "EBB_LIMIT";
    /// Profiles the heap from the start: which stacks of calls allocated the memory in use. `ebb
    /// profile` does it in any running process. Default: off.
    profile: ProfileChoice = Off, "EBB_PROFILE";
    /// When the process writes its profile to a file by itself. Needs `EBB_PROFILE`. Default:
    /// never.
    profile_at: ProfileAtChoice = Never, "EBB_PROFILE_AT";
    /// The directory of these files. Default: the working directory.
    profile_to: ProfileToChoice = Unset, "EBB_PROFILE_TO";
}

/// Passes the value of an environment variable, if it is set, to `parse`. Prints a message if
/// `parse` returns false.
#[inline(never)]
fn look_up(os: &impl Os, variable: &str, expected: &str, parse: &mut dyn FnMut(&[u8]) -> bool) {
    let mut buffer = [0; 32];
    let Some(length) = os.environment(variable, &mut buffer) else { return };
    let value = &buffer[..length];
    if parse(value) {
        return;
    }
    let value = core::str::from_utf8(value).unwrap_or("?");
    let expected = expected.strip_prefix('|').unwrap_or(expected);
    Line::print(
        os,
        format_args!("{variable}={value} is not understood and ignored; use {expected}"),
    );
}
