//! Declares the options: environment variables, which a program may also set in its code. Parsing,
//! messages, the methods by which Rust code sets them, and `docs/options.md` all come from the
//! declarations below.
//!
//! They are the same on every target. Where the engine does not run, they have no effect.

// Lowest first: each uses only modules above it in this list.
pub(crate) mod parsing;

use core::fmt::{Display, Formatter, Result as Written};
use core::num::NonZeroU32;

use self::parsing::{bytes, is_off, is_on, number, percentage, position};

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
    /// Whether memory for blocks up to 4 KiB is backed by huge pages of 2 MiB.
    HugeChoice {
        /// Where the heap grows, once 16 MiB are in use, while they cost the program at most 1/32
        /// of its time more than small pages do.
        Auto = "auto" | "1",
        /// Where the heap grows, once 16 MiB are in use, whatever they take.
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
    fn parse(word: &[u8]) -> Option<Self> {
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
    const EXPECTED: &str = "|auto|200ms|10s, 86400s at most";
    const HELP: &[(&str, &str)] = &[
        (
            "|auto|200ms",
            "Half of what was not needed for 200 ms goes, and so on. Without a scavenger, memory \
             goes as the program frees: the less there is, the later.",
        ),
        ("|500|500ms|10s", "The same for another time; milliseconds without a unit."),
        ("|0ms", "It goes as soon as it is free."),
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

    fn parse(word: &[u8]) -> Option<Self> {
        if is_off(word) {
            return Some(Self::Off);
        }
        number(word)?.try_into().ok().map(Self::one_of)
    }

    const EXPECTED: &str = "|0|5000";
    const HELP: &[(&str, &str)] = &[
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

    fn parse(word: &[u8]) -> Option<Self> {
        match word {
            _ if is_off(word) => Some(Self::Off),
            _ if is_on(word) => Some(Self::Usual),
            _ => bytes(word).map(|mean_bytes| Self::mean(mean_bytes.min(u32::MAX as u64) as u32)),
        }
    }

    const EXPECTED: &str = "|0|1|512K";
    const HELP: &[(&str, &str)] = &[
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
    fn parse(word: &[u8]) -> Option<Self> {
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

    const EXPECTED: &str = "|exit|peak|limit:90%|signal:USR2";
    const HELP: &[(&str, &str)] = &[
        ("|0", "Never, unless `EBB_PROFILE_TO` is set: then at exit."),
        ("|exit", "When the process exits: `ebb.PID.exit.heap`."),
        (
            "|peak",
            "When memory in use, or free and resident, exceeds the last peak by a sixteenth: \
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
    fn parse(word: &[u8]) -> Option<Self> {
        Some(if word.is_empty() { Self::Unset } else { Self::Given })
    }

    const EXPECTED: &str = "|/var/tmp/%p";
    const HELP: &[(&str, &str)] = &[
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

    fn parse(word: &[u8]) -> Option<Self> {
        if is_off(word) {
            return Some(Self::None);
        }
        if let Some(digits) = word.strip_suffix(b"%") {
            return percentage(digits).map(Self::Percent);
        }
        let bytes = bytes(word)?;
        (bytes >= Self::MIN_BYTES).then_some(Self::Bytes(bytes))
    }

    const EXPECTED: &str = "|512M|2GiB|75%, 1M at least";
    const HELP: &[(&str, &str)] = &[
        ("|0", "No limit."),
        ("|512M|1.5GiB|2000000", "Bytes, at least 1M."),
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

/// Whether an option is declared as strict.
macro_rules! is_strict {
    () => {
        false
    };
    (strict) => {
        true
    };
}

/// Declares the options: for each its purpose, field, type, default and variable; whether the
/// program stops if its value is not understood (`strict`), rather than run without it; and the
/// methods by which Rust code sets it.
macro_rules! options {
    ($(
        $(#[doc = $doc:literal])+
        $field:ident: $kind:ident = $default:ident, $variable:literal $(, $strict:ident)? {$(
            $(#[doc = $about:literal])+
            fn $method:ident($($argument:ident: $type:ty)?) = $value:expr;
        )*}
    )+) => {
        /// The options of a process.
        #[derive(Clone, Copy, Debug)]
        pub struct Options { $($(#[doc = $doc])+ pub $field: $kind,)+ }

        /// The places of options in the list.
        #[derive(Clone, Copy, PartialEq, Eq)]
        #[expect(non_camel_case_types, reason = "they are the names of fields")]
        pub(crate) enum Place { $($field,)+ }

        impl Options {
            /// All options at their defaults.
            pub const DEFAULT: Self = Self { $($field: $kind::$default,)+ };

            /// The variables, a bar before each.
            pub const VARIABLES: &str = concat!($("|", $variable),+);

            /// The place of the option with this variable.
            pub(crate) fn place(variable: &[u8]) -> Option<Place> {
                const PLACES: &[Place] = &[$(Place::$field),+];
                PLACES.get(position(Self::VARIABLES, variable)?).copied()
            }

            /// Sets an option. False if the word is not understood.
            pub(crate) fn set(&mut self, place: Place, word: &[u8]) -> bool {
                match place {
                    $(Place::$field => {
                        $kind::parse(word).map(|value| self.$field = value).is_some()
                    })+
                }
            }

            /// The words that are understood, and whether the program stops for others.
            pub(crate) fn expected(place: Place) -> (&'static str, bool) {
                match place {
                    $(Place::$field => ($kind::EXPECTED, is_strict!($($strict)?)),)+
                }
            }

            /// For each option its variable, its purpose, whether the program stops if its value is
            /// not understood, and its values: words, a bar before each, with their meaning.
            pub const TABLE: &[(&str, &str, bool, &[(&str, &str)])] = &[$((
                $variable,
                concat!($($doc),+),
                is_strict!($($strict)?),
                $kind::HELP,
            )),+];
        }

        /// Defines the methods by which Rust code sets options, for a type with a field `settings`.
        macro_rules! methods_of_options {
            () => {$($(
                $(#[doc = $about])+
                #[must_use]
                pub const fn $method(mut self $(, $argument: $type)?) -> Self {
                    self.settings.options.$field = $value;
                    self.settings.given |= 1 << Place::$field as usize;
                    self
                }
            )*)+};
        }
    };
}

options! {
    /// The front end that serves small blocks. Default: `auto`.
    mode: ModeChoice = Auto, "EBB_MODE" {
        /// Chooses the front end: `EBB_MODE`.
        fn mode(mode: ModeChoice) = mode;
    }
    /// Prints at start which mode is in force, and why. Default: off.
    explain: ExplainChoice = Off, "EBB_EXPLAIN" {
        /// Prints at start which mode is in force, and why: `EBB_EXPLAIN=1`.
        fn explain() = ExplainChoice::On;
    }
    /// Keeps statistics and prints them at exit. Default: off.
    stats: StatsChoice = Off, "EBB_STATS" {
        /// Keeps statistics, and prints them at exit: `EBB_STATS`.
        fn print_stats(format: StatsChoice) = format;
    }
    /// The file for statistics at exit, which is replaced. Default: standard error.
    stats_to: PathChoice = Unset, "EBB_STATS_TO" {
        /// Names the file for statistics at exit: `EBB_STATS_TO`.
        fn stats_to(path: &'static str) = PathChoice::Path(path);
    }
    /// Checks every block, for tests: slow. Default: off.
    check: CheckChoice = Off, "EBB_CHECK", strict {
        /// Checks every block: `EBB_CHECK=1`.
        fn check() = CheckChoice::On;
        /// Checks every block, without a list of blocks held at exit: `EBB_CHECK=noleaks`.
        fn check_without_leaks() = CheckChoice::NoLeaks;
    }
    /// Makes heap mistakes hard to exploit, for production. Ignored if `EBB_CHECK` is set. Default:
    /// off.
    harden: HardenChoice = Off, "EBB_HARDEN", strict {
        /// Makes heap mistakes hard to exploit: `EBB_HARDEN=1`.
        fn harden() = HardenChoice::On;
    }
    /// Gives some blocks a page of their own, where wrong accesses fault (`docs/sampling.md`).
    /// Ignored if `EBB_CHECK` or `EBB_HARDEN` is set. Default: off.
    sample: SampleChoice = Off, "EBB_SAMPLE", strict {
        /// Gives about one block in `mean` a page of its own: `EBB_SAMPLE`. 0 gives none.
        fn sample(mean: u32) = SampleChoice::one_of(mean);
    }
    /// The scavenger: a thread of the engine that returns unused memory to the kernel. Default:
    /// `auto`.
    scavenger: ScavengerChoice = Auto, "EBB_SCAVENGER" {
        /// Never starts the thread that returns memory: `EBB_SCAVENGER=0`.
        fn no_scavenger() = ScavengerChoice::Off;
    }
    /// How long free memory stays resident that is not needed. More makes programs faster that
    /// need it again; less makes them smaller. Default: `auto`.
    purge_delay: DelayChoice = Usual, "EBB_PURGE_DELAY" {
        /// Sets how long free memory stays resident that is not needed: `EBB_PURGE_DELAY`, in
        /// milliseconds.
        fn purge_delay(ms: u32) = DelayChoice::Ms(ms);
    }
    /// Huge pages for blocks up to 4 KiB: faster to use, but on some machines slow to get. Longer
    /// blocks get none. Default: `auto`.
    huge: HugeChoice = Auto, "EBB_HUGE" {
        /// Chooses when blocks up to 4 KiB are backed by huge pages: `EBB_HUGE`.
        fn huge(when: HugeChoice) = when;
    }
    /// The most memory that blocks may take. Beyond it the engine purges free memory, and then
    /// allocations fail (NULL and ENOMEM). It counts units of 64 KiB, each with 604 bytes of
    /// tables: those of large blocks, those of spans with a block in use or in a cache, and free
    /// ones that are resident. It does not count the slabs of caches, at most 256 KiB for each CPU
    /// or thread, or memory that the engine did not allocate. Default: none.
    limit: LimitChoice = None, "EBB_LIMIT", strict {
        /// Limits the memory of all blocks to this many bytes, 1 MiB at least: `EBB_LIMIT=512M`.
        fn limit(bytes: u64) = LimitChoice::bytes(bytes);
        /// Limits the memory of all blocks to a share of the control group's memory limit, or of
        /// the machine's memory: `EBB_LIMIT=75%`.
        fn limit_percent(percent: u8) = LimitChoice::percent(percent);
    }
    /// Profiles the heap from the start: which stacks of calls allocated the memory in use. `ebb
    /// profile` does it in any running process. Default: off.
    profile: ProfileChoice = Off, "EBB_PROFILE" {
        /// Profiles the heap from the start: a block is sampled each `mean_bytes` bytes, on
        /// average: `EBB_PROFILE=512K`. 0 does not.
        fn profile(mean_bytes: u32) = ProfileChoice::mean(mean_bytes);
    }
    /// When the process writes its profile to a file by itself. Needs `EBB_PROFILE`. Default:
    /// never.
    profile_at: ProfileAtChoice = Never, "EBB_PROFILE_AT" {
        /// Chooses when the process writes its profile: `EBB_PROFILE_AT`.
        fn profile_at(when: ProfileAtChoice) = when;
    }
    /// The directory of these files. Default: the working directory.
    profile_to: PathChoice = Unset, "EBB_PROFILE_TO" {
        /// Names the directory of these files: `EBB_PROFILE_TO`.
        fn profile_to(directory: &'static str) = PathChoice::Path(directory);
    }
}
pub(crate) use methods_of_options;

/// The options that a program sets in its code.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub(crate) options: Options,
    /// Which options are set: a bit for each place in the list.
    pub(crate) given: u16,
    /// Whether the environment cannot change them.
    pub(crate) is_fixed: bool,
}

impl Settings {
    /// Sets nothing.
    pub const NONE: Self = Self { options: Options::DEFAULT, given: 0, is_fixed: false };
}

/// Why an option does not change while the program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetError {
    /// No option has this name.
    UnknownName = 1,
    /// The option does not understand this value.
    UnknownValue,
    /// This option can be set at start only.
    OnlyAtStart,
    /// It cannot be changed in this process now: memory is short, or another option forbids it.
    NotNow,
    /// The system's allocator serves, which has no options.
    NotHere,
}

impl Display for SetError {
    fn fmt(&self, f: &mut Formatter) -> Written {
        f.write_str(match self {
            Self::UnknownName => "no option has this name; docs/options.md has all",
            Self::UnknownValue => "the option does not understand this value; see docs/options.md",
            Self::OnlyAtStart => "this option can be set at start only",
            Self::NotHere => "the system's allocator serves, which has no options",
            Self::NotNow => "memory is short, or another option forbids it",
        })
    }
}

impl core::error::Error for SetError {}

impl SetError {
    /// The error with this number, as another process has it.
    #[doc(hidden)]
    pub fn of_number(number: u32) -> Option<Self> {
        let all = [Self::UnknownName, Self::UnknownValue, Self::OnlyAtStart, Self::NotNow];
        all.into_iter().find(|&error| error as u32 == number)
    }
}

/// A function that is called when a request for this many bytes is refused.
pub type OnRefusal = extern "C" fn(bytes: usize);
/// A function that is called when this many bytes are held, and that many may be.
pub type OnPressure = extern "C" fn(held_bytes: usize, limit_bytes: usize);
