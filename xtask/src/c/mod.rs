//! Step `c`: builds and runs each contract program under `tests/c` in several ways.
//!
//! The header of a program declares, one setting a line (see `tests/c/README.md`):
//!
//! - `expect: exit 0`, `expect: abort "start of the message"`, and so `report` or `fault`;
//!   `says: "text"` for further text in the message;
//! - `env: NAME=VALUE` for environment variables;
//! - `check: no WHY` or `check: only`; `harden: too` or `harden: only`;
//! - `ways:` how the program gets the library;
//! - `build:` compiler and flags, one build for each such line;
//! - `limit:` virtual memory in MiB, one run for each;
//! - `plugin: link` or `plugin: load` if the file is also built as a shared object, with `PLUGIN`
//!   defined. The program is linked to it, or loads it from `PLUGIN_PATH`.

pub mod emulated;
mod emulation;
mod expect;

use crate::compiler::{self, Object, Plugin, WAYS, Way};
use crate::context::Context;
use crate::header::Header;
use crate::library::{Care, Library, Mode};
use crate::process::{self, Finished};
use crate::tally::Tally;
use crate::{packages, pool};
use anyhow::{Context as _, Result, bail, ensure};
use expect::{Expect, quoted};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A program exits with this code if it cannot do its test here, and says why on standard error
/// (automake's convention).
pub const SKIPPED: i32 = 77;
const RUN_LIMIT: Duration = Duration::from_secs(60);
/// The limit with `--long`, which sets `LONG` in the programs' environment.
const LONG_LIMIT: Duration = Duration::from_secs(3600);

/// Whether a program runs in check mode too.
#[derive(PartialEq, Debug)]
enum Check {
    /// It runs once more in check mode, if it expects to exit.
    Too,
    Only,
    /// It does not, for this reason.
    No(String),
}

/// Whether a program runs hardened too.
#[derive(PartialEq, Debug)]
enum Harden {
    No,
    Too,
    Only,
}

/// Whether to run a program with an option.
enum Todo<'a> {
    Nothing,
    Run,
    Skip(&'a str),
}

/// A program that was built, and how it gets the library.
pub struct Built {
    pub executable: PathBuf,
    way: Way,
    /// Whether `way` is the program's first.
    pub first: bool,
    /// The file, and the compiler with its flags.
    title: String,
}

/// One run of a program that was built.
pub struct Run<'a> {
    pub title: String,
    mode: &'a Mode,
    /// Bytes of address space.
    pub limit: Option<u64>,
    care: Option<Care>,
}

pub struct Program {
    source: PathBuf,
    name: String,
    expect: Expect,
    ways: Vec<Way>,
    builds: Vec<Vec<String>>,
    /// Bytes of address space; None for no limit.
    limits: Vec<Option<u64>>,
    plugin: Option<Plugin>,
    check: Check,
    harden: Harden,
    /// Environment variables and their values.
    env: Vec<(String, String)>,
    /// Texts that standard error must contain.
    says: Vec<String>,
}

/// Returns all programs of the step whose name contains `filter`, in order of name.
pub fn programs(root: &Path, filter: &str) -> Result<Vec<Program>> {
    let dir = root.join("tests/c");
    let mut programs = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        let is_program = path.extension().is_some_and(|ending| ending == "c" || ending == "cpp");
        if is_program
            && path.file_stem().is_some_and(|stem| stem.to_string_lossy().contains(filter))
        {
            programs
                .push(Program::read(path.clone()).with_context(|| format!("{}", path.display()))?);
        }
    }
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(programs)
}

/// Returns the packages that `programs` need.
pub fn packages_of(programs: &[Program]) -> BTreeSet<String> {
    programs
        .iter()
        .flat_map(|program| &program.builds)
        .flat_map(|build| compiler::packages(&build[0]))
        .collect()
}

pub fn run(context: &Context) -> Result<Tally> {
    let programs = programs(&context.root, &context.filter)?;
    let modes = context.library.modes(&context.work)?;
    let mut tally = test_each(&programs, context, &modes);
    if !context.long {
        tally.skip("c: the second and third way in further modes", "with --long");
    }
    Ok(tally)
}

/// Builds and runs programs in each mode.
pub fn test_each(programs: &[Program], context: &Context, modes: &[Mode]) -> Tally {
    pool::for_each(programs, |program| {
        let start = Instant::now();
        let mut tally = Tally::default();
        if let Err(error) = program.test(context, modes, &mut tally) {
            tally.fail(&program.name, format!("{error:#}"));
        }
        println!("  c/{}: {tally}, {:.1} s", program.name, start.elapsed().as_secs_f64());
        tally
    })
}

impl Program {
    fn read(source: PathBuf) -> Result<Program> {
        let text = fs::read_to_string(&source)?;
        let header = Header::parse(
            &text,
            "//",
            &["expect", "ways", "build", "limit", "plugin", "check", "harden", "says", "env"],
        )?;
        let cpp = source.extension().is_some_and(|ending| ending == "cpp");
        let mut builds: Vec<Vec<String>> = header
            .all("build")
            .iter()
            .map(|build| build.split_whitespace().map(str::to_string).collect())
            .collect();
        if builds.is_empty() {
            builds.push(vec![if cpp { "g++" } else { "gcc" }.to_string()]);
        }
        let mut ways =
            header.words("ways").iter().map(|way| Way::parse(way)).collect::<Result<Vec<_>>>()?;
        if ways.is_empty() {
            ways = WAYS.to_vec();
        }
        let mut limits =
            header.words("limit").iter().map(|mib| parse_limit(mib)).collect::<Result<Vec<_>>>()?;
        if limits.is_empty() {
            limits.push(None);
        }
        let env = header.all("env").iter().map(|text| variable(text)).collect::<Result<_>>()?;
        let name = source.file_name().context("no file name")?.to_string_lossy().into_owned();
        let plugin = match header.one("plugin") {
            None => None,
            Some("link") => Some(Plugin::Link),
            Some("load") => Some(Plugin::Load),
            Some(other) => bail!("`plugin: {other}` is neither `link` nor `load`"),
        };
        let expect = Expect::parse(header.one("expect").context("the header has no `expect:`")?)?;
        let harden = match header.one("harden") {
            None => Harden::No,
            Some("too") => Harden::Too,
            Some("only") => Harden::Only,
            Some(other) => bail!("`harden: {other}` is neither `too` nor `only`"),
        };
        let check = match header.one("check").map(|text| text.split_once(' ').unwrap_or((text, "")))
        {
            None if harden == Harden::Only => Check::No("it is about hardening".into()),
            None => Check::Too,
            Some(("only", "")) => Check::Only,
            Some(("no", why)) if !why.is_empty() => Check::No(why.to_string()),
            Some(_) => bail!("`check:` is neither `only` nor `no WHY`"),
        };
        let says = header.all("says").iter().map(|text| quoted(text)).collect::<Result<_>>()?;
        Ok(Program { name, expect, ways, builds, limits, plugin, check, harden, env, says, source })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the same program with one build only.
    pub fn built_by(self, build: &str, ways: &str) -> Result<Program> {
        let builds = vec![build.split_whitespace().map(str::to_string).collect()];
        let ways = ways.split_whitespace().map(Way::parse).collect::<Result<_>>()?;
        Ok(Program { builds, ways, limits: vec![None], ..self })
    }

    pub fn test(&self, context: &Context, modes: &[Mode], tally: &mut Tally) -> Result<()> {
        for built in self.build(context, tally)? {
            for run in self.runs(context, modes, &built, tally)? {
                match self.run_once(context, &built, &run) {
                    Ok(Some(why)) => tally.skip(&run.title, why),
                    done => tally.count(&run.title, done.map(drop)),
                }
            }
        }
        Ok(())
    }

    /// Compiles and links the program by each compiler and in each way.
    pub fn build(&self, context: &Context, tally: &mut Tally) -> Result<Vec<Built>> {
        let mut all = Vec::new();
        let own = matches!(self.expect, Expect::Abort(_) | Expect::Fault(_))
            || self.is_about_an_option()
            || !self.env.is_empty();
        if !context.library.is_ours() && own {
            tally.skip(&self.name, "the message is ebbmalloc's own");
            return Ok(all);
        }
        for (index, build) in self.builds.iter().enumerate() {
            let title = format!("{} ({})", self.name, build.join(" "));
            if let Some(package) = packages::missing(&compiler::packages(&build[0])) {
                tally.skip(&title, format!("package {package} is not installed"));
                continue;
            }
            let dir = context.work.join("c").join(format!("{}.{index}", self.name));
            fs::create_dir_all(&dir)?;
            let object =
                match Object::compile(&context.root, &self.source, build, self.plugin, &dir) {
                    Ok(object) => object,
                    Err(error) => {
                        tally.fail(&title, error);
                        continue;
                    }
                };
            for &way in &self.ways {
                if way != Way::Preload && !context.library.is_ours() {
                    continue;
                }
                match object.link(&context.library, way) {
                    Ok(executable) => {
                        let (title, first) = (title.clone(), way == self.ways[0]);
                        all.push(Built { executable, way, first, title });
                    }
                    Err(error) => tally.fail(&format!("{title} [{}]", way.name()), error),
                }
            }
        }
        Ok(all)
    }

    /// Returns the runs of one executable: under each limit in each mode. For every way but the
    /// first, only the first available mode is used, unless `--long` asks for all. Then come runs
    /// with options in that mode, as all blocks take the same path there.
    pub fn runs<'a>(
        &self,
        context: &Context,
        modes: &'a [Mode],
        built: &Built,
        tally: &mut Tally,
    ) -> Result<Vec<Run<'a>>> {
        let (title, way) = (&built.title, built.way);
        let first = modes.iter().position(|mode| mode.unavailable.is_none());
        let first = first.context("no mode is available")?;
        let all = context.long || built.first;
        let tried = if all { modes } else { &modes[first..=first] };
        let mut runs = Vec::new();
        for &limit in self.limits.iter().filter(|_| !self.is_about_an_option()) {
            for mode in tried {
                let mib = limit.map_or(String::new(), |bytes| format!(", {} MiB", bytes >> 20));
                let title = format!("{title} [{}, {}{mib}]", way.name(), mode.name);
                match &mode.unavailable {
                    Some(why) => tally.skip(&title, why),
                    None => runs.push(Run { title, mode, limit, care: None }),
                }
            }
        }
        if !context.library.is_ours() {
            return Ok(runs);
        }
        let (mode, limit) = (&modes[first], self.limits[0]);
        for (care, todo) in
            [(Library::CHECK, self.checked(way)), (Library::HARDEN, self.hardened(way))]
        {
            let title = format!("{title} [{}, {}]", way.name(), care.0);
            match todo {
                Todo::Nothing => {}
                Todo::Skip(why) => tally.skip(&title, why),
                Todo::Run => runs.push(Run { title, mode, limit, care: Some(care) }),
            }
        }
        Ok(runs)
    }

    /// Returns whether the program runs with options only.
    fn is_about_an_option(&self) -> bool {
        self.check == Check::Only || self.harden == Harden::Only
    }

    fn checked(&self, way: Way) -> Todo<'_> {
        let exits = matches!(self.expect, Expect::Exit(_));
        match &self.check {
            Check::No(_) if self.harden == Harden::Only => Todo::Nothing,
            Check::No(why) => Todo::Skip(why),
            Check::Only => Todo::Run,
            Check::Too if exits && self.env.is_empty() && way == self.ways[0] => Todo::Run,
            Check::Too => Todo::Nothing,
        }
    }

    fn hardened(&self, way: Way) -> Todo<'_> {
        match self.harden {
            Harden::No => Todo::Nothing,
            _ if way != self.ways[0] => Todo::Nothing,
            _ => Todo::Run,
        }
    }

    /// Runs the program once. Returns its reason if it could not do its test here.
    fn run_once(&self, context: &Context, built: &Built, run: &Run) -> Result<Option<String>> {
        let log = run.care.map_or(run.mode.name, |(name, _)| name);
        let log = built.executable.with_extension(log);
        let time = match context {
            Context { long: true, .. } => LONG_LIMIT,
            Context { emulated: true, .. } => 4 * RUN_LIMIT,
            _ => RUN_LIMIT,
        };
        let mut command = self.command(context, built, run)?;
        let mut ended = process::run(&mut command, time, &log, run.limit)?;
        if context.emulated {
            ended.stderr = emulation::said_by_program(&ended.stderr);
        }
        self.judge(&context.library, run, &ended)
    }

    /// Makes the command of a run.
    pub fn command(&self, context: &Context, built: &Built, run: &Run) -> Result<Command> {
        let (library, executable) = (&context.library, &built.executable);
        let mut command = process::under(context.runner, executable);
        library.environment(&mut command, run.mode);
        command.current_dir(executable.parent().context("no directory")?);
        match built.way {
            Way::Preload if context.emulated => {
                emulation::preload(&mut command, &library.preload());
            }
            Way::Preload => drop(command.env("LD_PRELOAD", library.preload())),
            Way::Load => drop(command.env("LIBRARY", library.preload())),
            Way::Dynamic | Way::Static => {}
        }
        command.envs(run.care.map(|(_, variable)| (variable, "1")));
        if context.long {
            command.env("LONG", "1");
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    /// Judges how a run ended. Returns the program's reason if it could not do its test.
    pub fn judge(&self, library: &Library, run: &Run, ended: &Finished) -> Result<Option<String>> {
        if ended.status.and_then(|status| status.code()) == Some(SKIPPED) {
            let why = ended.stderr.lines().next().unwrap_or("it does not say why");
            return Ok(Some(why.to_string()));
        }
        self.expect.judge(ended)?;
        if let Expect::Exit(_) = self.expect {
            let (mode, proof) = (run.mode.name, library.proves(&ended.stderr, run.mode));
            ensure!(proof, "no statistics of mode {mode}: {}", ended.describe());
        }
        for text in &self.says {
            let said = ended.stderr.contains(text);
            ensure!(said, "expected `{text}` to be said, got {}", ended.describe());
        }
        Ok(None)
    }
}

fn parse_limit(word: &str) -> Result<Option<u64>> {
    if word == "none" {
        return Ok(None);
    }
    let mib: u64 = word.parse().with_context(|| format!("limit `{word}` is no number of MiB"))?;
    Ok(Some(mib << 20))
}

fn variable(text: &str) -> Result<(String, String)> {
    let (name, value) =
        text.split_once('=').with_context(|| format!("`env: {text}` has no `=`"))?;
    Ok((name.to_string(), value.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables() {
        assert!(variable("EBB_SAMPLE=1").is_ok() && variable("EBB_SAMPLE").is_err());
    }

    #[test]
    fn limits_are_mebibytes() {
        assert_eq!(parse_limit("256").unwrap(), Some(256 << 20));
        assert_eq!(parse_limit("none").unwrap(), None);
        assert!(parse_limit("much").is_err());
    }
}
