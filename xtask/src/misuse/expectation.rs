//! Parses and writes what a program's first comment expects of ebbmalloc, mode by mode and size by
//! size.
//!
//! A line is `MODE: OUTCOME` or `MODE: OUTCOME for SIZES`; the last line for a size holds.
//! `default` covers percpu, thread and slot unless they have a line of their own. Several outcomes
//! may be allowed: `A or B`.

use crate::header::Header;
use crate::misuse::outcome::Outcome;
use anyhow::{Context as _, Result, ensure};

/// The modes that expectations are declared for.
pub const KEYS: [&str; 6] = ["default", "percpu", "thread", "slot", "check", "harden"];

/// Sizes of the block in bytes: four small ones, two large ones.
pub const SIZES: [usize; 6] = [16, 100, 1_000, 20_000, 200_000, 3_000_000];

/// The allowed outcomes for each of `KEYS` and each of `SIZES`; empty if none is declared.
#[derive(Default)]
pub struct Expectation([[Vec<Outcome>; SIZES.len()]; KEYS.len()]);

impl Expectation {
    pub fn read(header: &Header) -> Result<Expectation> {
        let mut expectation = Expectation::default();
        for (key, rows) in KEYS.iter().zip(&mut expectation.0) {
            for line in header.all(key) {
                let (outcomes, places) = parse(line)?;
                for place in places {
                    rows[place] = outcomes.clone();
                }
            }
        }
        Ok(expectation)
    }

    /// Returns the outcomes allowed in a mode, for the size at this index of `SIZES`.
    pub fn of(&self, mode: &str, size: usize) -> &[Outcome] {
        let own = &self.0[place_of(mode)][size];
        if own.is_empty() && falls_back(mode) { &self.0[0][size] } else { own }
    }

    /// Replaces what a mode allows by an outcome, unless it is allowed already.
    pub fn bless(&mut self, mode: &str, size: usize, outcome: Outcome) {
        if self.of(mode, size).contains(&outcome) {
            return;
        }
        let only = vec![outcome];
        match falls_back(mode) && self.0[0][size].is_empty() {
            true => self.0[0][size] = only,
            false => self.0[place_of(mode)][size] = only,
        }
    }

    /// Returns the lines that declare these expectations.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        KEYS.iter().zip(&self.0).flat_map(|(key, row)| {
            let mut kinds: Vec<&Vec<Outcome>> = Vec::new();
            for outcomes in row.iter().filter(|outcomes| !outcomes.is_empty()) {
                if !kinds.contains(&outcomes) {
                    kinds.push(outcomes);
                }
            }
            kinds.into_iter().map(move |kind| {
                let text = kind.iter().map(Outcome::to_string).collect::<Vec<_>>().join(" or ");
                let sizes: Vec<String> = row
                    .iter()
                    .zip(SIZES)
                    .filter(|(outcomes, _)| *outcomes == kind)
                    .map(|(_, size)| size.to_string())
                    .collect();
                match sizes.len() {
                    n if n == SIZES.len() => format!("{key}: {text}"),
                    _ => format!("{key}: {text} for {}", sizes.join(" ")),
                }
            })
        })
    }
}

/// Returns whether the default applies to this mode too.
fn falls_back(mode: &str) -> bool {
    ["percpu", "thread", "slot"].contains(&mode)
}

fn place_of(mode: &str) -> usize {
    KEYS.iter().position(|key| *key == mode).expect("one of the modes")
}

/// Returns the outcomes of a line, and the indexes of the sizes that it is for.
fn parse(line: &str) -> Result<(Vec<Outcome>, Vec<usize>)> {
    let is_list = |text: &str| text.chars().all(|c| c.is_ascii_digit() || c == ' ');
    let (outcomes, sizes) = match line.rsplit_once(" for ") {
        Some((outcomes, sizes)) if is_list(sizes) => (outcomes, Some(sizes)),
        _ => (line, None),
    };
    let places = match sizes {
        None => (0..SIZES.len()).collect(),
        Some(sizes) => sizes
            .split_whitespace()
            .map(|size| {
                let known = SIZES.iter().position(|known| known.to_string() == size);
                known.with_context(|| format!("no run has {size} bytes"))
            })
            .collect::<Result<Vec<_>>>()?,
    };
    ensure!(!places.is_empty(), "`{line}` names no size");
    let outcomes = outcomes.split(" or ").map(Outcome::parse).collect::<Result<Vec<_>>>()?;
    Ok((outcomes, places))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Expectation> {
        Expectation::read(&Header::parse(text, "//", &KEYS)?)
    }

    #[test]
    fn a_line_for_a_mode_or_a_size_comes_before_the_general_one() {
        let text = "// Prose.\n// default: abort \"double free: N\"\n\
                    // thread: exploitable or silent for 16 100\n";
        let found = read(text).unwrap();
        let abort = Outcome::Abort("double free: N".into());
        assert_eq!(found.of("percpu", 0), std::slice::from_ref(&abort));
        assert_eq!(found.of("thread", 0), [Outcome::Exploitable, Outcome::Silent]);
        assert_eq!(found.of("thread", 2), [abort]);
        assert!(found.of("check", 0).is_empty());
    }

    #[test]
    fn blessing_keeps_what_is_allowed_and_writes_what_is_read() {
        let mut found = read("// default: exploitable or silent\n").unwrap();
        found.bless("percpu", 0, Outcome::Silent);
        found.bless("slot", 1, Outcome::Leak);
        for size in 0..SIZES.len() {
            found.bless("check", size, Outcome::Segv);
        }
        let lines: Vec<String> = found.lines().collect();
        assert_eq!(lines, ["default: exploitable or silent", "slot: leak for 100", "check: segv"]);
    }

    #[test]
    fn unknown_sizes_and_outcomes_are_errors() {
        for bad in ["// default: silent for 17", "// default: loud", "// check: abort"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
