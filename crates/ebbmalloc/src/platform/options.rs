//! Options: environment variables, read once at start. Declared once, below; parsing, messages
//! and `docs/options.md` come from the declaration.

use core::num::NonZeroU32;

use crate::platform::message::Line;
use crate::platform::os::Os;

/// Whether this build has what finds mistakes: check mode, harden mode and sampling. In one without, what asks for them asks this
/// first, and the compiler leaves out what no choice leads to.
pub(crate) const CAREFUL: bool = cfg!(feature = "careful");
/// The same for what a program says of itself: statistics, and which mode is in force.
pub(crate) const TELLING: bool = cfg!(feature = "stats");

/// Declares an option's type: its values, the words for them, and what each means.
macro_rules! choices {
    ($(#[$meta:meta])* $name:ident { $($(#[doc = $doc:literal])+ $variant:ident = $($word:literal)|+,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name { $($(#[doc = $doc])+ $variant,)+ }

        impl $name {
            fn parse(word: &[u8]) -> Option<Self> {
                // In the order of the words.
                const MEANT: &[$name] = &[$($({ let _ = $word; $name::$variant }),+),+];
                MEANT.get(position(Self::EXPECTED, word)?).copied()
            }

            const EXPECTED: &str = concat!($($("|", $word),+),+);
            const HELP: &[(&str, &str)] = &[$((concat!($("|", $word),+), concat!($($doc),+))),+];
        }
    };
}

/// Which of the words it is, each of which has a bar before it.
#[inline(never)]
fn position(words: &str, word: &[u8]) -> Option<usize> {
    words.as_bytes().split(|&byte| byte == b'|').skip(1).position(|known| known == word)
}

choices! {
    /// Which front end serves small blocks.
    ModeChoice {
        /** The best that works here: percpu, else thread for up to 4 threads a CPU and slot for the others. */
        Auto = "auto",
        /** A cache for each virtual CPU, by restartable sequences; as auto where there are none. */
        PerCpu = "percpu",
        /** A cache for each thread, given back when it exits. */
        Thread = "thread",
        /** As many caches as CPUs, each behind a try-lock. */
        Slot = "slot",
    }
}

choices! {
    /// Whether statistics are kept and printed when the program exits.
    StatsChoice {
        /** Nothing is printed. */
        Off = "0" | "",
        /** Statistics as text on standard error, and where resident memory is (`docs/why.md`). */
        Text = "1",
        /** Statistics as one line of JSON on standard error. */
        Json = "json",
        /** Statistics as OpenMetrics text, for Prometheus and its kin, on standard error. */
        OpenMetrics = "openmetrics",
    }
}

choices! {
    /// Whether a thread of the engine gives memory back that nobody needs any more.
    ScavengerChoice {
        /** In programs that have several threads anyway, and a few MiB in use. */
        Auto = "auto" | "1",
        /** Never: memory goes back only while the program frees blocks. */
        Off = "0" | "off",
    }
}

choices! {
    /// Whether a program says as it starts which front end serves it.
    ExplainChoice {
        /** Nothing is said. */
        Off = "0" | "",
        /** One line on standard error: the mode, why this one, and what else would work. */
        On = "1",
    }
}

choices! {
    /// Whether each block is checked.
    CheckChoice {
        /** No. */
        Off = "0" | "",
        /** Mistakes stop the program, and blocks still held at exit are listed: `docs/check.md`. */
        On = "1",
        /** The same without that list. */
        NoLeaks = "noleaks",
    }
}

choices! {
    /// Whether mistakes are made hard to exploit.
    HardenChoice {
        /** No. */
        Off = "0" | "",
        /** Blocks lie in random places between guard pages, are zero when freed, and come back late; mistakes that are seen stop the program: `docs/harden.md`. */
        On = "1",
    }
}

/// Whether blocks are sampled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SampleChoice {
    /// None is.
    Off,
    /// About one of so many.
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
            "About one of so many that caches are filled with, one a refill at most; 1: each, as long as there are slots.",
        ),
    ];
}

/// How much memory the engine may hold at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitChoice {
    /// As much as there is.
    None,
    /// So many bytes.
    Bytes(u64),
    /// A share of what the process may have, by its control group or by the machine.
    Percent(u8),
}

impl LimitChoice {
    /// No program gets far with less: a number without the suffix that was meant.
    const LEAST: u64 = 1 << 20;

    fn parse(word: &[u8]) -> Option<Self> {
        let digits = word.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, suffix) = word.split_at(digits);
        if matches!(word, b"" | b"0") {
            return Some(Self::None);
        }
        let number: u64 = str::from_utf8(number).ok()?.parse().ok()?;
        let power = match suffix {
            [b'%'] => {
                let share = u8::try_from(number).ok().filter(|share| (1..=100).contains(share));
                return share.map(Self::Percent);
            }
            [] => 0,
            [unit] | [unit, b'i', b'B'] => {
                1 + b"KMGT".iter().position(|known| *known == unit.to_ascii_uppercase())?
            }
            _ => return None,
        };
        let bytes = number.checked_mul(1 << (10 * power))?;
        (bytes >= Self::LEAST).then_some(Self::Bytes(bytes))
    }

    const EXPECTED: &str = "|512M|2GiB|75%, 1M at least";
    const HELP: &[(&str, &str)] = &[
        ("|0|", "No limit."),
        ("|512M|2GiB|1000000", "So many bytes, 1M at least; K, M, G and T are powers of 1,024."),
        (
            "|75%",
            "A share of what the process may have: by its control group, or as the machine has.",
        ),
    ];
}

impl Options {
    /// Whether anything is chosen that [`CAREFUL`] is for.
    pub(crate) fn is_careful(&self) -> bool {
        self.check != CheckChoice::Off
            || self.harden != HardenChoice::Off
            || self.sample != SampleChoice::Off
    }

    /// The same for [`TELLING`].
    pub(crate) fn is_telling(&self) -> bool {
        self.stats != StatsChoice::Off || self.explain != ExplainChoice::Off
    }
}

/// Declares the options: field, variable, type, default, and what it is for.
macro_rules! options {
    ($($(#[doc = $doc:literal])+ $field:ident: $kind:ident = $default:ident, $variable:literal;)+) => {
        /// What the environment asks for.
        #[derive(Clone, Copy, Debug)]
        pub struct Options { $($(#[doc = $doc])+ pub $field: $kind,)+ }

        impl Options {
            /// The value of every option that is not set.
            pub const DEFAULT: Self = Self { $($field: $kind::$default,)+ };

            /// Reads the environment. A value that makes no sense is named on standard error,
            /// and the default stands.
            pub fn read(os: &impl Os) -> Self {
                let mut options = Self::DEFAULT;
                $(look_up(os, $variable, $kind::EXPECTED, &mut |word| {
                    $kind::parse(word).map(|value| options.$field = value).is_some()
                });)+
                options
            }

            /// The table in `docs/options.md`: a row for each value of each option.
            pub fn document(out: &mut impl core::fmt::Write) -> core::fmt::Result {
                $(
                    writeln!(out, "## `{}`\n\n{}\n", $variable, concat!($($doc),+).trim())?;
                    writeln!(out, "| value | meaning |\n|---|---|")?;
                    for (words, help) in $kind::HELP {
                        out.write_str("|")?;
                        for word in words.split('|').skip(1) {
                            let shown = if word.is_empty() { "(empty)" } else { word };
                            write!(out, " `{shown}`")?;
                        }
                        writeln!(out, " | {} |", help.trim())?;
                    }
                    out.write_str("\n")?;
                )+
                Ok(())
            }
        }
    };
}

options! {
    /** DrainScope front end serves small blocks. Default: `auto`. */
    mode: ModeChoice = Auto, "EBB_MODE";
    /** Whether a process says as it starts which mode is in force, and why. Default: no. */
    explain: ExplainChoice = Off, "EBB_EXPLAIN";
    /** Whether statistics are kept and printed at exit. Default: off. */
    stats: StatsChoice = Off, "EBB_STATS";
    /** Whether each block is checked, which costs time and memory. Default: no. */
    check: CheckChoice = Off, "EBB_CHECK";
    /// Whether mistakes with blocks are made hard to exploit, for programs in production, at a moderate cost. Where
    /// `EBB_CHECK` is set too, this is ignored. Default: no.
    harden: HardenChoice = Off, "EBB_HARDEN";
    /** Whether some blocks get a page of their own, where wrong accesses are seen: `docs/sampling.md`. Not with `EBB_CHECK` or `EBB_HARDEN`. Default: no. */
    sample: SampleChoice = Off, "EBB_SAMPLE";
    /// Whether a thread of the engine gives memory back that nobody needs. Default: `auto`.
    scavenger: ScavengerChoice = Auto, "EBB_SCAVENGER";
    /// How much memory blocks may take; beyond it allocating fails (NULL and ENOMEM), after free memory has gone
    /// back to make room. Counted are units of 64 KiB that are in use, by large blocks or by spans of which a block
    /// is in use or in a cache, and those that are free but still resident, each with its entries in the tables
    /// (604 bytes). Not counted are the slabs of caches, at most 256 KiB for each CPU or thread, and what the engine
    /// did not allocate. Default: none.
    limit: LimitChoice = None, "EBB_LIMIT";
}

/// Has the value of a variable understood, if it has one; says so where that is not possible.
#[inline(never)]
fn look_up(
    os: &impl Os,
    variable: &str,
    expected: &str,
    understand: &mut dyn FnMut(&[u8]) -> bool,
) {
    let mut buffer = [0; 32];
    let Some(length) = os.environment(variable, &mut buffer) else { return };
    let value = &buffer[..length];
    if understand(value) {
        return;
    }
    let value = core::str::from_utf8(value).unwrap_or("?");
    let expected = expected.strip_prefix('|').unwrap_or(expected);
    Line::print(
        os,
        format_args!("{variable}={value} is not understood and ignored; use {expected}"),
    );
}
