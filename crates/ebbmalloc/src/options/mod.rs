//! Declares the options: environment variables, which a program may also set in its code. Parsing,
//! messages, the methods by which Rust code sets them, and `docs/options.md` all come from the
//! declarations below, and from the values that `choices.rs` declares.
//!
//! They are the same on every target. Where the engine does not run, they have no effect.

// Lowest first: each uses only modules above it in this list.
pub(crate) mod parsing;
mod choices;

use core::fmt::{Display, Formatter, Result as Written};

pub use self::choices::{
    CheckChoice, DelayChoice, ExplainChoice, HardenChoice, HugeChoice, LimitChoice, ModeChoice,
    PathChoice, ProfileAtChoice, ProfileChoice, SampleChoice, ScavengerChoice, StatsChoice,
};
use self::parsing::position;

/// Whether this build has check mode, harden mode and sampling. Code tests this before it asks for
/// them, so that the compiler leaves them out of other builds.
pub(crate) const CAREFUL: bool = cfg!(feature = "careful");
/// Whether this build has statistics and `EBB_EXPLAIN`. Code tests it as it does [`CAREFUL`].
pub(crate) const TELLING: bool = cfg!(feature = "stats");

/// Whether this build has heap profiles. Code tests it as it does [`CAREFUL`].
pub(crate) const PROFILING: bool = cfg!(feature = "profile");

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
    /// Huge pages for blocks up to 4 KiB, and from 4 MiB on: faster to use, but on some machines
    /// slow to get. Other blocks get none. Default: `auto`.
    huge: HugeChoice = Auto, "EBB_HUGE" {
        /// Chooses when blocks are backed by huge pages: `EBB_HUGE`.
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
