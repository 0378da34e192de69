//! Lists the allocators of the matrix: ebbmalloc in its modes, and its peers.

use crate::context::Context;
use crate::library::{Library, Mode};
use crate::misuse::case::Subject;
use anyhow::{Context as _, Result, ensure};
use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Modes that are not available here, and why.
pub type Skipped = Vec<(String, String)>;

/// Returns ebbmalloc in each available mode and with each option, and the modes it skipped.
pub fn modes(context: &Context) -> Result<(Vec<Subject>, Skipped)> {
    Ok(among(context, context.library.modes(&context.work)?))
}

/// Returns the same for these modes.
pub fn among(context: &Context, modes: Vec<Mode>) -> (Vec<Subject>, Skipped) {
    let (mut subjects, mut skipped) = (Vec::new(), Vec::new());
    for mode in modes {
        match mode.unavailable {
            Some(why) => skipped.push((mode.name.to_string(), why)),
            None => subjects.push(own(context, mode.name, Some(("EBB_MODE", mode.name)))),
        }
    }
    subjects.extend(options(context));
    (subjects, skipped)
}

/// Returns ebbmalloc as the table shows it: with its defaults, and with each option.
pub fn ours(context: &Context) -> Vec<Subject> {
    let mut subjects = vec![own(context, "default", None)];
    subjects.extend(options(context));
    for subject in &mut subjects {
        subject.name = format!("ebbmalloc {}", subject.name);
    }
    subjects
}

fn options(context: &Context) -> Vec<Subject> {
    let own = |(name, variable)| own(context, name, Some((variable, "1")));
    Library::OPTIONS.into_iter().map(own).collect()
}

fn own(context: &Context, name: &str, option: Option<(&str, &str)>) -> Subject {
    Subject {
        name: name.to_string(),
        library: Some(context.library.preload()),
        environment: option.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
        origin: option.map_or("as it comes".into(), |(k, v)| format!("`{k}={v}`")),
    }
}

/// Parses a library of the command line: `NAME=PATH.so`.
pub fn named(argument: &str) -> Result<Subject> {
    let (name, path) = argument.split_once('=').context("a library is NAME=PATH.so")?;
    let library = PathBuf::from(path).canonicalize().with_context(|| path.to_string())?;
    let origin = format!("`{}`", library.file_name().unwrap_or_default().display());
    Ok(Subject { name: name.into(), library: Some(library), environment: Vec::new(), origin })
}

/// Returns the peers that the benchmarks' workspace installs or builds. It reports failures on
/// standard error.
pub fn peers(context: &Context, names: &[String]) -> Result<Vec<Subject>> {
    let output = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["run", "--quiet", "--release", "--locked", "--package", "allocators", "--"])
        .args(names)
        .current_dir(context.root.join("bench"))
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    ensure!(output.status.success(), "the peers could not be set up");
    String::from_utf8(output.stdout)?.lines().map(parse).collect()
}

/// Parses a line of that program: name, library, environment and origin, between tabs.
fn parse(line: &str) -> Result<Subject> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [name, library, environment, origin] = fields[..] else {
        anyhow::bail!("`{line}` has not four fields");
    };
    let variables = environment.split_whitespace().filter_map(|pair| pair.split_once('='));
    Ok(Subject {
        name: name.into(),
        library: (!library.is_empty()).then(|| library.into()),
        environment: variables.map(|(k, v)| (k.into(), v.into())).collect(),
        origin: origin.into(),
    })
}
