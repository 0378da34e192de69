//! Step `programs`: runs each script under `tests/programs` without and with the library preloaded.
//! `tests/programs/README.md` says how to write scripts.

mod script;
mod table;

use crate::context::Context;
use crate::library::{Library, Mode};
use crate::process::{Finished, last_lines};
use crate::tally::Tally;
use crate::{packages, pool};
use anyhow::{Context as _, Result, ensure};
pub use script::Script;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;
use table::{Outcome, Table};

/// Reason for skipping the scripts that only `--long` runs.
const LONG: &str = "takes minutes or heavy packages; --long runs it";

/// Returns all scripts of the step whose name contains `filter`. Long ones come first, so that they
/// do not run alone at the end.
pub fn scripts(root: &Path, filter: &str) -> Result<Vec<Script>> {
    let dir = root.join("tests/programs");
    let mut scripts = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".sh"))
        else {
            continue;
        };
        if name.contains(filter) && name != "on" {
            let name = name.to_string();
            scripts.push(Script::read(path, name.clone()).with_context(|| format!("{name}.sh"))?);
        }
    }
    scripts.sort_by(|a, b| b.limit.cmp(&a.limit).then_with(|| a.name.cmp(&b.name)));
    Ok(scripts)
}

/// Returns the packages that the scripts need that will run.
pub fn packages_of(scripts: &[Script], context: &Context) -> BTreeSet<String> {
    let chosen = scripts.iter().filter(|script| context.long || !script.long);
    chosen.flat_map(|script| script.packages.iter().cloned()).collect()
}

pub fn run(context: &Context) -> Result<Tally> {
    let scripts = scripts(&context.root, &context.filter)?;
    let modes = context.library.modes(&context.work)?;
    let options = context.library.options();
    let mut tally = Tally::default();
    for option in options.iter().filter(|_| scripts.iter().any(|script| !script.also.is_empty())) {
        if let Some(why) = &option.unavailable {
            tally.skip(&format!("programs [{}]", option.name), why);
        }
    }
    let (later, scripts): (Vec<_>, Vec<_>) =
        scripts.into_iter().partition(|script| script.long && !context.long);
    for script in later {
        tally.skip(&script.name, LONG);
    }
    let rows = Mutex::new(Table::default());
    tally += pool::for_each(&scripts, |script| {
        let start = Instant::now();
        let mut tally = Tally::default();
        match test(script, context, &modes, &options, &mut tally) {
            Ok(Some(outcomes)) => {
                rows.lock().expect("another job panicked").add(script, script.version(), outcomes)
            }
            Ok(None) => {}
            Err(error) => tally.fail(&script.name, format!("{error:#}")),
        }
        println!("  programs/{}: {tally}, {:.1} s", script.name, start.elapsed().as_secs_f64());
        tally
    });
    let table = context.work.join("programs.md");
    rows.into_inner().expect("a job panicked").write(&table)?;
    println!("  table: {}", table.display());
    Ok(tally)
}

/// Runs `script` without the library and in each mode. Returns the outcomes, or None if it could
/// not run.
fn test(
    script: &Script,
    context: &Context,
    modes: &[Mode],
    options: &[Mode],
    tally: &mut Tally,
) -> Result<Option<Vec<Outcome>>> {
    if let Some(package) = packages::missing(&script.packages) {
        tally.skip(&script.name, format!("package {package} is not installed"));
        return Ok(None);
    }
    let plain = script.run(context, &Library::Glibc, "plain", |_| {})?;
    ensure!(plain.success(), "fails without any library preloaded: {}", plain.describe());
    let library = &context.library;
    let mut outcomes = Vec::new();
    // Options that are not available were reported once for all scripts.
    let options = options.iter().filter(|option| {
        option.unavailable.is_none() && script.also.iter().any(|name| name == option.name)
    });
    for mode in modes.iter().chain(options) {
        let test = format!("{} [{}]", script.name, mode.name);
        if let Some(why) = &mode.unavailable {
            tally.skip(&test, why);
            continue;
        }
        let run = script
            .run(context, library, mode.name, |command| library.environment(command, mode))?;
        let result = judge(&plain, &run, library, mode);
        outcomes.push(Outcome { mode: mode.name, passed: result.is_ok() });
        tally.count(&test, result);
    }
    Ok(Some(outcomes))
}

pub fn judge(plain: &Finished, run: &Finished, library: &Library, mode: &Mode) -> Result<()> {
    ensure!(run.success(), "{}\n{}", run.describe(), last_lines(&run.stdout, 12));
    ensure!(
        run.stdout == plain.stdout,
        "prints something else than without the library.\n  without:\n{}\n  with:\n{}",
        last_lines(&plain.stdout, 12),
        last_lines(&run.stdout, 12)
    );
    ensure!(
        library.proves(&run.stderr, mode),
        "no statistics of mode {}: {}",
        mode.name,
        run.describe()
    );
    Ok(())
}
