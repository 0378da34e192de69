//! Builds and plans the jobs of `--all`: the contract programs, the programs that misuse the
//! library, the engine's tests, and real programs. Files lie in the guest where they lie here, as
//! some contain their paths.

use super::guest_paths::TESTS;
use super::jobs::{Planned, Proof};
use super::target::{Arch, Kernel};
use crate::c::{self, Built, Program};
use crate::context::Context;
use crate::cross;
use crate::library::{Library, Mode};
use crate::misuse::case::{self, Case, Subject};
use crate::misuse::expectation::SIZES;
use crate::misuse::outcome::Outcome;
use crate::misuse::subjects;
use crate::process;
use crate::programs::{self, Script};
use crate::tally::Tally;
use anyhow::{Context as _, Result};
use ebbmalloc_guest::{APART, Job};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Scripts of `tests/programs` whose programs need no more than their packages' files.
const SCRIPTS: [&str; 5] = ["jq", "lua", "perl", "python", "sqlite3"];
/// Packages with the libraries and tools that programs and scripts use.
const PACKAGES: [&str; 7] =
    ["bash", "coreutils", "dash", "grep", "libstdc++6", "sed", "util-linux"];
/// Programs that cannot run in such a machine, and why.
const UNSERVED: [(&str, &str); 1] = [("faults.c", "it reads registers of x86-64")];
/// Tests of the engine that build libraries, by a part of their names.
const COMPILING: [&str; 2] = ["libraries_without_tables", "libraries_are_opened_and_closed"];
/// Time limits in seconds, as translated machines are slow.
const PROGRAM_S: u64 = 300;
const SCRIPT_S: u64 = 1200;
const ENGINE_S: u64 = 3600;

/// All that the jobs need.
pub struct All {
    context: Context,
    programs: Vec<(Program, Vec<Built>)>,
    cases: Vec<(Case, PathBuf)>,
    scripts: Vec<Script>,
    /// What could not be built.
    pub tally: Tally,
}

/// The mode of a kernel, and what the programs that misuse the library run on.
pub struct Modes {
    modes: Vec<Mode>,
    subjects: Vec<Subject>,
}

impl All {
    /// Builds the programs with the library in `release`, in the directory `work`.
    pub fn build(root: &Path, work: &Path, release: &Path, arch: &Arch) -> Result<All> {
        let library = Library::Ours(release.to_path_buf());
        let context =
            Context { root: root.into(), work: work.into(), library, ..Context::find("")? };
        let mut tally = Tally::default();
        let mut programs = Vec::new();
        let prefix = arch.compiler.strip_suffix("gcc").context("the compiler is no gcc")?;
        for program in c::programs(root, "")? {
            if let Some((name, why)) = UNSERVED.iter().find(|(name, _)| *name == program.name()) {
                tally.skip(name, why);
                continue;
            }
            let program = program.built_for(prefix);
            let built = program.build(&context, &mut tally)?;
            programs.push((program, built));
        }
        let mut cases = Vec::new();
        for case in case::cases(root, "")? {
            let built = case.build(root, arch.compiler, &work.join("misuse"))?;
            cases.push((case, built));
        }
        let mut scripts = programs::scripts(root, "")?;
        scripts.retain(|script| SCRIPTS.contains(&script.name.as_str()));
        Ok(All { context, programs, cases, scripts, tally })
    }

    /// Returns the packages whose files the guest needs.
    pub fn packages(&self) -> BTreeSet<String> {
        let scripts = programs::packages_of(&self.scripts, &self.context);
        scripts.into_iter().chain(PACKAGES.map(str::to_string)).collect()
    }

    /// Returns the files that lie in the guest where they lie here.
    pub fn files(&self) -> Vec<PathBuf> {
        let programs = self.programs.iter().flat_map(|(_, built)| built);
        let programs = programs.map(|built| built.executable.clone());
        let plugins = programs.clone().map(|executable| executable.with_file_name("plugin.so"));
        let cases = self.cases.iter().map(|(_, executable)| executable.clone());
        let scripts = self.scripts.iter().map(|script| script.path.clone());
        let on = self.context.root.join("tests/programs/on.sh");
        let mut files: BTreeSet<PathBuf> = plugins.filter(|path| path.exists()).collect();
        files.extend(programs.chain(cases).chain(scripts));
        files.extend([on, self.context.library.preload()]);
        files.into_iter().collect()
    }

    /// Returns the mode to run all in. The others need no kernel of their own: the step `aarch64`
    /// of `cargo xtask test --long` tests them.
    pub fn modes(&self, kernel: &Kernel) -> Modes {
        let name = if kernel.id.is_some() { "percpu" } else { "thread" };
        let modes = vec![Mode { name, setting: ("EBB_MODE", name), unavailable: None }];
        let (subjects, _) = subjects::among(&self.context, modes.clone());
        Modes { modes, subjects }
    }

    /// Returns the jobs; `engine` names the engine's tests. Programs that get the library in a
    /// further way come last.
    pub fn plan<'a>(
        &'a self,
        modes: &'a Modes,
        engine: &[String],
        tally: &mut Tally,
    ) -> Result<Vec<Planned<'a>>> {
        let mut plan = self.contract(modes, true, tally)?;
        plan.extend(self.misuse(modes));
        plan.extend(self.real(modes));
        COMPILING.iter().for_each(|test| tally.skip(test, "no compiler is in the machine"));
        for name in engine {
            let mut command = Command::new(format!("{TESTS}/{name}"));
            command.arg("--test-threads=2").env("PATH", "/usr/bin").envs(cross::FEW);
            command.args(COMPILING.iter().flat_map(|test| ["--skip", test]));
            let job = Job { apart: false, ..apart(&format!("{name}-all"), ENGINE_S, &command) };
            plan.push(Planned { job, proof: Proof::End });
        }
        plan.extend(self.contract(modes, false, tally)?);
        Ok(plan)
    }

    /// Returns the jobs of the contract programs, those in their first way or the others.
    fn contract<'a>(
        &'a self,
        Modes { modes, .. }: &'a Modes,
        first: bool,
        tally: &mut Tally,
    ) -> Result<Vec<Planned<'a>>> {
        let context = &self.context;
        let mut plan = Vec::new();
        for (program, all) in &self.programs {
            for built in all.iter().filter(|built| built.first == first) {
                for run in program.runs(context, modes, built, tally)? {
                    let mut command = program.command(context, built, &run)?;
                    if let Some(bytes) = run.limit {
                        command = limited(&command, bytes);
                    }
                    let job = apart(&format!("c/{}", run.title), PROGRAM_S, &command);
                    plan.push(Planned::judged(job, move |ended, _| {
                        program.judge(&context.library, &run, &ended.run())
                    }));
                }
            }
        }
        Ok(plan)
    }

    fn misuse<'a>(&'a self, Modes { subjects, .. }: &'a Modes) -> Vec<Planned<'a>> {
        let mut plan = Vec::new();
        for (case, executable) in &self.cases {
            for subject in subjects {
                for (place, size) in SIZES.into_iter().enumerate() {
                    let name = format!("misuse/{}-{size}[{}]", case.name, subject.name);
                    let command = case::command(executable, subject, size);
                    plan.push(Planned::judged(
                        apart(&name, PROGRAM_S, &command),
                        move |ended, _| {
                            case.judge(subject, place, &Outcome::of(&ended.run())?).map(|()| None)
                        },
                    ));
                }
            }
        }
        plan
    }

    /// Returns the jobs of the real programs: each without the library, then with it.
    fn real<'a>(&'a self, Modes { modes, .. }: &'a Modes) -> Vec<Planned<'a>> {
        let library = &self.context.library;
        let mut plan = Vec::new();
        for script in &self.scripts {
            let without = format!("programs/{}[without]", script.name);
            let command = script.command(&Library::Glibc, Path::new(APART));
            plan.push(Planned { job: apart(&without, SCRIPT_S, &command), proof: Proof::End });
            for mode in modes {
                let name = format!("programs/{}[{}]", script.name, mode.name);
                let mut command = script.command(library, Path::new(APART));
                library.environment(&mut command, mode);
                let without = without.clone();
                plan.push(Planned::judged(apart(&name, SCRIPT_S, &command), move |ended, all| {
                    let plain = all.iter().find(|ended| ended.name == without);
                    let plain = plain.context("the run without the library is missing")?;
                    programs::judge(&plain.run(), &ended.run(), library, mode).map(|()| None)
                }));
            }
        }
        plan
    }
}

/// Makes the job that runs a command in a directory of its own.
fn apart(name: &str, limit_s: u64, command: &Command) -> Job {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    let variables = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    Job {
        name: name.replace(' ', ""),
        limit_s,
        hotplug: false,
        apart: true,
        environment: variables
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .collect(),
        command: words.map(|word| word.display().to_string()).collect(),
    }
}

/// Returns the same command with a limit of its address space.
fn limited(command: &Command, bytes: u64) -> Command {
    let limit = format!("--as={bytes}");
    let mut limited =
        process::under(&["/usr/bin/prlimit", &limit], Path::new(command.get_program()));
    limited.args(command.get_args());
    limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    limited
}
