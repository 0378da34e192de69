//! Step `misuse` of `cargo xtask test`: checks that each program, size and mode of ebbmalloc ends
//! as its first comment declares.

use crate::context::Context;
use crate::misuse::case::cases;
use crate::misuse::expectation::SIZES;
use crate::misuse::subjects;
use crate::packages;
use crate::pool;
use crate::tally::Tally;
use anyhow::Result;
use std::collections::BTreeSet;
use std::fs;

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
        match case.build(&context.root, "gcc", &work) {
            Err(error) => tally.fail(&case.name, format!("{error:#}")),
            Ok(executable) => {
                for subject in &subjects {
                    for (place, size) in SIZES.into_iter().enumerate() {
                        let test = format!("{} {size} [{}]", case.name, subject.name);
                        let found = case.run(&executable, subject, size);
                        let judged = found.and_then(|found| case.judge(subject, place, &found));
                        tally.count(&test, judged);
                    }
                }
            }
        }
        tally
    });
    Ok(tally)
}
