//! Formats the matrix as Markdown.

use crate::misuse::case::{Case, Subject, THREATS};
use crate::misuse::expectation::SIZES;
use crate::misuse::outcome::Outcome;
use std::fmt::Write as _;

/// Outcomes by subject, case and size; None where the program itself failed.
pub type Results = Vec<Vec<Vec<Option<Outcome>>>>;

const KINDS: [(char, &str); 6] = [
    ('a', "stopped"),
    ('s', "killed by SIGSEGV"),
    ('.', "silent"),
    ('L', "secret read"),
    ('X', "exploitable"),
    ('H', "hangs"),
];

/// Formats the totals and the results for each threat.
pub fn markdown(cases: &[Case], subjects: &[Subject], results: &Results) -> String {
    let letters = letters(results);
    let mut text = String::new();
    totals(&mut text, subjects, &letters);
    text.push('\n');
    threats(&mut text, cases, subjects, &letters);
    text
}

/// Formats the outcome of each run in columns, under the numbers of the allocators.
pub fn matrix(cases: &[Case], subjects: &[Subject], results: &Results) -> String {
    let letters = letters(results);
    let width = cases.iter().map(|case| case.name.len()).max().unwrap_or_default();
    let mut text = String::new();
    let mut row = |name: &str, cells: Vec<String>| {
        let row = format!("{name:width$} {}", cells.join(" "));
        writeln!(text, "{}", row.trim_end()).unwrap();
    };
    let of_columns = SIZES.len();
    row("", (1..=subjects.len()).map(|number| format!("{number:<of_columns$}")).collect());
    for (nth, case) in cases.iter().enumerate() {
        row(&case.name, letters.iter().map(|of| of[nth].clone()).collect());
    }
    text
}

/// The letters of the outcomes by subject and case, one for each size.
fn letters(results: &Results) -> Vec<Vec<String>> {
    results
        .iter()
        .map(|cases| cases.iter().map(|sizes| sizes.iter().map(letter).collect()).collect())
        .collect()
}

fn letter(outcome: &Option<Outcome>) -> char {
    outcome.as_ref().map_or('?', Outcome::letter)
}

fn totals(text: &mut String, subjects: &[Subject], letters: &[Vec<String>]) {
    let count = |of: &[String], kind: char| -> usize {
        of.iter().map(|sizes| sizes.chars().filter(|&c| c == kind).count()).sum()
    };
    // Programs seldom hang, so that column appears only if one did.
    let kinds: Vec<_> = KINDS
        .into_iter()
        .filter(|(kind, _)| *kind != 'H' || letters.iter().any(|of| count(of, 'H') > 0))
        .collect();
    text.push_str("| allocator |");
    kinds.iter().for_each(|(_, name)| write!(text, " {name} |").unwrap());
    text.push_str(" what it is |\n|---|");
    kinds.iter().for_each(|_| text.push_str("---:|"));
    text.push_str("---|\n");
    for (number, (subject, of)) in (1..).zip(subjects.iter().zip(letters)) {
        write!(text, "| {number} {} |", subject.name).unwrap();
        kinds.iter().for_each(|(kind, _)| write!(text, " {} |", count(of, *kind)).unwrap());
        writeln!(text, " {} |", subject.origin).unwrap();
    }
}

/// Formats for each allocator and threat how many runs were stopped, and how many were exploitable.
fn threats(text: &mut String, cases: &[Case], subjects: &[Subject], letters: &[Vec<String>]) {
    let of_threat = |threat: &str| -> Vec<usize> {
        (0..cases.len()).filter(|&case| cases[case].threat == threat).collect()
    };
    text.push_str("| stopped or killed, *exploitable* |");
    for threat in THREATS {
        write!(text, " {threat} (of {}) |", of_threat(threat).len() * SIZES.len()).unwrap();
    }
    text.push_str("\n|---|");
    THREATS.iter().for_each(|_| text.push_str("---:|"));
    text.push('\n');
    for (subject, of) in subjects.iter().zip(letters) {
        write!(text, "| {} |", subject.name).unwrap();
        for threat in THREATS {
            let runs = || of_threat(threat).into_iter().flat_map(|case| of[case].chars());
            let stopped = runs().filter(|c| "as".contains(*c)).count();
            match runs().filter(|&c| c == 'X').count() {
                0 => write!(text, " {stopped} |").unwrap(),
                exploitable => write!(text, " {stopped}, *{exploitable}* |").unwrap(),
            }
        }
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::misuse::case;
    use std::path::Path;

    #[test]
    fn outcomes_stand_under_the_numbers_of_the_allocators() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let cases = case::cases(root, "double_free_flush").unwrap();
        let subject = |name: &str| Subject {
            name: name.to_string(),
            library: None,
            environment: vec![],
            origin: String::new(),
        };
        let results = vec![vec![vec![None; SIZES.len()]]; 2];
        let subjects = [subject("one"), subject("two")];
        let text = markdown(&cases, &subjects, &results);
        assert!(text.contains("\n| 2 two |"), "{text}");
        let text = matrix(&cases, &subjects, &results);
        assert_eq!(text, "                  1      2\ndouble_free_flush ?????? ??????\n");
    }
}
