//! Step `misuse` of `cargo xtask test`: checks that each program, size and mode of ebbmalloc ends
//! as its first comment declares.

use crate::context::Context;
use crate::misuse::case::{Case, Subject, cases};
use crate::misuse::expectation::SIZES;
use crate::misuse::outcome::Outcome;
use crate::misuse::subjects;
use crate::packages;
use crate::pool;
use crate::tally::Tally;
use anyhow::{Result, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

pub fn needed(_: &Context) -> Result<BTreeSet<String>> {
    Ok(BTreeSet::from(["gcc".to_string()]))
}

pub fn run(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    if !context.library.is_ours() {
        tally.skip("misuse", "what is expected is ebbmalloc's; `cargo xtask misuse` shows others");
        return Ok(tally);
    }
    if packages::missing(&needed(context)?).is_some() {
        tally.skip("misuse", "package gcc is not installed");
        return Ok(tally);
    }
    let work = context.work.join("misuse");
    fs::create_dir_all(&work)?;
    let (subjects, skipped) = subjects::modes(context)?;
    for (mode, why) in skipped {
        tally.skip(&format!("misuse in mode {mode}"), why);
    }
    let cases = cases(&context.root, &context.filter)?;
    tally += pool::for_each(&cases, |case| {
        let mut tally = Tally::default();
        match case.build(&context.root, &work) {
            Err(error) => tally.fail(&case.name, format!("{error:#}")),
            Ok(executable) => {
                for subject in &subjects {
                    for (place, size) in SIZES.into_iter().enumerate() {
                        let test = format!("{} {size} [{}]", case.name, subject.name);
                        tally.count(&test, check(case, &executable, subject, place));
                    }
                }
            }
        }
        tally
    });
    Ok(tally)
}

fn check(case: &Case, executable: &Path, subject: &Subject, place: usize) -> Result<()> {
    let found = case.run(executable, subject, SIZES[place])?;
    let allowed = case.expectation.of(&subject.name, place);
    let wanted = allowed.iter().map(|outcome| outcome.to_string()).collect::<Vec<_>>().join(" or ");
    ensure!(!wanted.is_empty(), "nothing is expected of this mode: `cargo xtask misuse --bless`");
    // Harden mode places blocks at random, so which error it notices first is random too.
    let random = subject.name == "harden" && is_stop(&found) && allowed.iter().any(is_stop);
    ensure!(random || allowed.contains(&found), "expected {wanted}, got {found}");
    Ok(())
}

/// Returns whether ebbmalloc itself stopped the program.
fn is_stop(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Abort(line) if line.starts_with("ebbmalloc: "))
}
