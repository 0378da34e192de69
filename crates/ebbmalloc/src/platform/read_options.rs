//! Reads the options at start: first what the program sets in its code, then the environment, which
//! has the last word unless the program has fixed its own.
//!
//! Nothing is ignored in silence. A word that is not understood is told, and for options of safety
//! it ends the program. A name that does not exist is told with the nearest one that does.

use core::fmt::{Display, Formatter, Result as Written};

use crate::options::parsing::{nearest, position};
use crate::options::{Options, PathChoice, Place, SetError, Settings};
use crate::platform::message::Line;
use crate::platform::os::Os;
use crate::platform::path::Path;

/// The start of the name of every variable.
const PREFIX: &str = "EBB_";
/// The word by which a program fixes its options.
const FIXED: &[u8] = b"fixed";
/// The exit code of a program that does not start because of an option: EX_CONFIG of sysexits.h.
pub(crate) const BAD_OPTION: i32 = 78;
/// Variables that only the command `ebb` and tests read.
const OTHERS: &str = "|EBB_LIBRARY|EBB_BLESS|EBB_WHEEL_TARGET";
const PREFIXES_OF_OTHERS: [&[u8]; 2] = [b"EBB_TEST_", b"EBB_FUZZ_"];

/// Where a word comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Environment,
    /// The string `ebb_options` of a C program.
    Code,
}

impl Options {
    /// Reads the options, given what Rust code sets. A name or value that is not understood is told
    /// on standard error.
    pub fn read(os: &impl Os, settings: &Settings) -> Self {
        let mut reader = Reader { os, settings: *settings, found: 0 };
        for (name, word) in entries(os.options_in_code()) {
            match name {
                FIXED => reader.settings.is_fixed = true,
                _ => reader.take(Source::Code, name, word),
            }
        }
        reader.settings.given |= core::mem::take(&mut reader.found);
        os.for_each_variable(PREFIX, &mut |entry| {
            let (name, word) = cut(entry, b"");
            reader.take(Source::Environment, name, word);
        });
        reader.settings.options
    }
}

impl Options {
    /// Changes an option by its name in code. Returns its place.
    pub(crate) fn change(&mut self, name: &[u8], word: &[u8]) -> Result<Place, SetError> {
        let mut variable = [0; 32];
        let variable = variable_of(Source::Code, name, &mut variable);
        let place = Self::place(variable).ok_or(SetError::UnknownName)?;
        if self.set(place, word) { Ok(place) } else { Err(SetError::UnknownValue) }
    }
}

/// The names and words of `ebb_options`. A name without a word switches on.
fn entries(options: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let entries = options.split(|&byte| byte == b',').map(|entry| entry.trim_ascii());
    entries.filter(|entry| !entry.is_empty()).map(|entry| cut(entry, b"1"))
}

/// Splits an entry at its `=`. Without one, the word is `missing`.
fn cut<'a>(entry: &'a [u8], missing: &'static [u8]) -> (&'a [u8], &'a [u8]) {
    match entry.iter().position(|&byte| byte == b'=') {
        Some(at) => (&entry[..at], &entry[at + 1..]),
        None => (entry, missing),
    }
}

struct Reader<'a, O> {
    os: &'a O,
    settings: Settings,
    /// The options that this source had so far: a bit for each place in the list.
    found: u16,
}

impl<O: Os> Reader<'_, O> {
    /// Takes the word of a source for the option of this name, without the prefix.
    #[inline(never)]
    fn take(&mut self, source: Source, name: &[u8], word: &[u8]) {
        let mut variable = [0; 32];
        let variable = variable_of(source, name, &mut variable);
        let Some(place) = Options::place(variable) else {
            return self.tell_unknown(source, name, variable);
        };
        let bit = 1 << place as u32;
        // Of two variables of one name, the first counts, as for getenv(3).
        if self.found & bit != 0 {
            return;
        }
        self.found |= bit;
        let (said, settings) = (Said { source, name, word }, &mut self.settings);
        if source == Source::Environment && settings.is_fixed && settings.given & bit != 0 {
            return Line::print(
                self.os,
                format_args!("{said} is ignored: the program has fixed this option"),
            );
        }
        if settings.options.set(place, word) {
            return;
        }
        let (expected, is_strict) = Options::expected(place);
        let expected = expected.strip_prefix('|').unwrap_or(expected);
        let what = if is_strict { ", so the program does not start" } else { " and ignored" };
        Line::print(self.os, format_args!("{said} is not understood{what}; use {expected}"));
        if is_strict {
            self.os.exit(BAD_OPTION);
        }
    }

    #[cold]
    fn tell_unknown(&self, source: Source, name: &[u8], variable: &[u8]) {
        if position(OTHERS, variable).is_some()
            || PREFIXES_OF_OTHERS.iter().any(|prefix| variable.starts_with(prefix))
        {
            return;
        }
        let nearest = nearest(Options::VARIABLES, variable);
        let nearest = Name(source, nearest.strip_prefix(PREFIX).unwrap_or(nearest).as_bytes());
        let name = Name(source, name);
        Line::print(
            self.os,
            format_args!(
                "{name} is no option and ignored; the nearest is {nearest}; docs/options.md has all"
            ),
        );
    }
}

/// Writes the name of the variable for an option: in code, letters are lower-case and the prefix is
/// missing. A name that is too long is cut, so that it is no option's.
fn variable_of<'a>(source: Source, name: &[u8], buffer: &'a mut [u8; 32]) -> &'a [u8] {
    let length = (PREFIX.len() + name.len()).min(buffer.len());
    buffer[..PREFIX.len()].copy_from_slice(PREFIX.as_bytes());
    for (to, from) in buffer[PREFIX.len()..].iter_mut().zip(name) {
        *to = match source {
            Source::Environment => *from,
            // An upper-case letter is as wrong here as a lower-case one there.
            Source::Code if from.is_ascii_uppercase() => b'?',
            Source::Code => from.to_ascii_uppercase(),
        };
    }
    &buffer[..length]
}

/// A name as its source has it.
struct Name<'a>(Source, &'a [u8]);

impl Display for Name<'_> {
    fn fmt(&self, f: &mut Formatter) -> Written {
        let Self(source, name) = self;
        if *source == Source::Environment {
            return write!(f, "{PREFIX}{}", name.escape_ascii());
        }
        f.write_str("ebb_options: ")?;
        name.iter().try_for_each(|&byte| write!(f, "{}", byte.to_ascii_lowercase() as char))
    }
}

/// A name and its word.
struct Said<'a> {
    source: Source,
    name: &'a [u8],
    word: &'a [u8],
}

impl Display for Said<'_> {
    fn fmt(&self, f: &mut Formatter) -> Written {
        let Self { source, name, word } = *self;
        // What does not fit in a line would hide the advice.
        let word = &word[..word.len().min(80)];
        write!(f, "{}={}", Name(source, name), str::from_utf8(word).unwrap_or("?"))
    }
}

impl PathChoice {
    /// The path as it is given, `variable` being the option's. For set-up only: the program may
    /// change its environment later.
    pub(crate) fn read(self, os: &impl Os, variable: &str) -> Path {
        let mut given = Path::EMPTY;
        let mut add = |path: &[u8]| given.add(path);
        match self {
            Self::Unset => {}
            Self::Path(path) => add(path.as_bytes()),
            Self::Given => {
                let own = variable.strip_prefix(PREFIX).unwrap_or(variable).as_bytes();
                let code = os.options_in_code();
                let is_own = |(name, _): &(&[u8], &[u8])| name.eq_ignore_ascii_case(own);
                let in_code = entries(code).find(is_own);
                let is_fixed = entries(code).any(|(name, _)| name == FIXED);
                let mut path = [0; 450];
                match (os.environment(variable, &mut path), in_code) {
                    (Some(length), None) => add(&path[..length]),
                    (Some(length), Some(_)) if !is_fixed => add(&path[..length]),
                    (_, Some((_, path))) => add(path),
                    (None, None) => {}
                }
            }
        }
        given
    }
}
