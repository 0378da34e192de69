//! Cases with programs that are drawn by lot from `bench/drawn.toml`, so that a run has some that
//! the allocator was not tuned for.
//!
//! `--draw N` draws N of them, `--only drawn/NAME` asks for them by name. Only the packages of
//! these programs are installed: from Debian, PyPI, crates.io (by `cargo install`) and npm.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::case::{Case, Job};
use crate::kit::{Kit, run};

pub const GROUP: &str = "drawn";
const PROGRAMS: &str = include_str!("../../../drawn.toml");
/// A program that takes longer in its set-up, where it runs once, is left out.
const TRIAL_SECONDS: &str = "60";

/// What the options of a run say about this group.
#[derive(Clone, Default)]
pub struct Draw {
    /// Number of programs to draw.
    pub count: usize,
    /// Determines which are drawn.
    pub seed: u64,
    /// Parts of case names (`--only`); programs of all names if there are none.
    pub only: Vec<String>,
}

#[derive(Deserialize)]
struct List {
    program: Vec<Program>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Program {
    name: String,
    about: String,
    registry: Registry,
    packages: Vec<String>,
    /// A shell script that writes further input, once.
    #[serde(default)]
    prepare: String,
    /// A shell script that runs the program. Like `prepare` it starts in a directory of its own and
    /// finds the shared input (`scripts/drawn/inputs.py`) in `$IN`.
    command: String,
}

#[derive(Deserialize, Clone, Copy)]
enum Registry {
    Debian,
    #[serde(rename = "PyPI")]
    PyPi,
    #[serde(rename = "crates.io")]
    CratesIo,
    #[serde(rename = "npm")]
    Npm,
}

pub fn cases(kit: &Kit) -> Result<Vec<Case>> {
    let programs = programs()?;
    let Draw { count, seed, only } = &kit.draw;
    if *count == 0 && kit.only_listing {
        return programs.iter().map(|program| program.case(kit)).collect();
    }
    let by_name = only.iter().any(|part| part.starts_with(&format!("{GROUP}/")));
    if *count == 0 && !by_name {
        if only.iter().any(|part| part == GROUP) {
            bail!("--draw N draws programs, --only {GROUP}/NAME asks for one");
        }
        return Ok(Vec::new());
    }
    let mut pool = of_names(programs, only);
    if pool.is_empty() {
        bail!("no program has such a name; --list names all");
    }
    if *count == 0 {
        return Ok(pool.iter().filter_map(|program| set_up(program, kit)).collect());
    }
    shuffle(&mut pool, *seed);
    // Another program takes the place of one that cannot be had. Where most cannot, as without a
    // network, the search ends.
    let tried = pool.iter().take(2 * count);
    Ok(tried.filter_map(|program| set_up(program, kit)).take(*count).collect())
}

fn programs() -> Result<Vec<Program>> {
    Ok(toml::from_str::<List>(PROGRAMS).context("drawn.toml")?.program)
}

/// Those of the programs whose case `--only` asks for.
fn of_names(mut programs: Vec<Program>, only: &[String]) -> Vec<Program> {
    programs.retain(|program| {
        let name = format!("{GROUP}/{}", program.name);
        only.is_empty() || only.iter().any(|part| name.contains(part))
    });
    programs
}

/// Puts the programs in the order in which they are drawn.
fn shuffle(programs: &mut [Program], seed: u64) {
    fastrand::Rng::with_seed(seed).shuffle(programs);
}

/// Sets a program up. Where that fails, the report says why. `--quick` includes what was asked for.
fn set_up(program: &Program, kit: &Kit) -> Option<Case> {
    let case = program.case(kit).map(Case::quick);
    case.inspect_err(|error| kit.note_missing(&format!("{GROUP}/{}", program.name), error)).ok()
}

impl Program {
    /// Sets the program up, runs it once, and makes its case.
    fn case(&self, kit: &Kit) -> Result<Case> {
        let packages: Vec<_> = self.packages.iter().map(String::as_str).collect();
        let own = format!("{GROUP}-{}", self.name);
        let programs = match self.registry {
            Registry::Debian => {
                kit.packages(&packages)?;
                None
            }
            Registry::PyPi => kit.python(&own, &packages)?.parent().map(PathBuf::from),
            Registry::CratesIo => Some(kit.crates(&own, &packages)?),
            Registry::Npm => Some(kit.npm(&own, &packages)?),
        };
        let path = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths(programs.into_iter().chain(env::split_paths(&path)))?;
        let input = kit.once("drawn-input", |path| {
            kit.packages(&["python3"])?;
            let script = kit.source("scripts/drawn/inputs.py");
            run(Command::new("/usr/bin/python3").arg(script).arg(path))
        })?;
        let folder = kit.work.join(GROUP).join(&self.name);
        let job = self
            .job(&folder)
            .env("IN", input)
            .env("PATH", path)
            .env("HOME", &folder)
            .env("LC_ALL", "C.UTF-8")
            .env("PYTHONHASHSEED", "0");
        kit.once(&format!("drawn-{}.done", self.name), |_| {
            // Left by an attempt that failed.
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder)?;
            let mut prepare = Command::new("sh");
            prepare.args(["-e", "-c", &self.prepare]).envs(job.env.iter().cloned());
            run(prepare.current_dir(&folder))?;
            let mut trial = Command::new("timeout");
            trial.arg(TRIAL_SECONDS).arg(&job.program).args(&job.arguments);
            run(trial.envs(job.env.iter().cloned()))
        })?;
        Ok(Case::new(format!("{GROUP}/{}", self.name), &self.about, job))
    }

    /// What programs print is no result: its last line could look like figures.
    fn job(&self, folder: &Path) -> Job {
        let script = format!("cd \"$0\" || exit\nexec > /dev/null\n{}", self.command);
        Job::new("/bin/sh").arg("-c").arg(script).arg(folder)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn first_ten(seed: u64) -> Vec<String> {
        let mut programs = programs().unwrap();
        shuffle(&mut programs, seed);
        programs.into_iter().take(10).map(|program| program.name).collect()
    }

    #[test]
    fn a_seed_determines_the_draw() {
        assert_eq!(first_ten(7), first_ten(7));
        assert_ne!(first_ten(7), first_ten(8));
        let drawn: BTreeSet<_> = (0..200).flat_map(first_ten).collect();
        assert_eq!(drawn.len(), programs().unwrap().len(), "each has its chance");
    }

    #[test]
    fn every_program_has_all_its_fields() {
        let programs = programs().unwrap();
        let names: BTreeSet<_> = programs.iter().map(|program| &program.name).collect();
        assert_eq!(names.len(), programs.len(), "unique names");
        for Program { name, about, packages, command, .. } in &programs {
            assert!(!name.is_empty() && !name.contains([' ', ',', '/']), "{name}");
            assert!(!about.is_empty() && !about.contains('\n'), "{name}: {about}");
            assert!(!packages.is_empty() && packages.iter().all(|p| !p.is_empty()), "{name}");
            assert!(!command.trim().is_empty(), "{name}");
        }
    }

    #[test]
    fn programs_that_cargo_and_npm_install_name_their_versions() {
        for Program { name, registry, packages, .. } in programs().unwrap() {
            let version = |package: &String| Some(package.rsplit_once('@')?.1.to_string());
            let exact = |package| {
                version(package).is_some_and(|v| v.split('.').count() == 3 && !v.starts_with('^'))
            };
            let fixed = matches!(registry, Registry::CratesIo | Registry::Npm);
            assert!(!fixed || packages.iter().all(exact), "{name}: give NAME@VERSION");
        }
    }

    /// Root may run them, and some replace their output file: `/dev/null` would be lost.
    #[test]
    fn no_program_writes_to_a_device_by_its_name() {
        for Program { name, prepare, command, .. } in programs().unwrap() {
            for script in [prepare, command] {
                let count = script.matches("/dev/").count();
                let redirected = script.split("/dev/").take(count).all(|part| part.ends_with("> "));
                assert!(redirected, "{name}: give a file of its own directory, not /dev/…");
            }
        }
    }

    #[test]
    fn programs_can_be_asked_for_by_name() {
        let names = |only: &[&str]| {
            let only: Vec<_> = only.iter().map(|part| part.to_string()).collect();
            of_names(programs().unwrap(), &only).len()
        };
        assert_eq!(names(&["drawn/lua"]), 1);
        assert_eq!(names(&["drawn/nothing"]), 0);
        assert_eq!(names(&["drawn"]), programs().unwrap().len());
        assert_eq!(names(&[]), programs().unwrap().len());
    }
}
