//! Step `programs`: the scripts under `tests/programs`, each run without and with the library preloaded.
//!
//! A script puts `on` before each program that is to run on the library, and prints what must come out the
//! same either way. Its header declares `packages:` it needs and, if a minute is too short, `timeout:` in
//! seconds. See `tests/programs/README.md`.

use crate::header::Header;
use crate::library::{Library, Mode};
use crate::process::{self, Finished, last_lines};
use crate::tally::Tally;
use crate::test::Context;
use crate::{packages, pool};
use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const LIMIT_SECONDS: u64 = 60;

pub struct Script {
    path: PathBuf,
    name: String,
    packages: Vec<String>,
    limit: Duration,
}

/// All scripts of the step whose name contains `filter`, the long ones first, so that they do not run
/// alone at the end.
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

/// The packages that `scripts` need.
pub fn packages_of(scripts: &[Script]) -> BTreeSet<String> {
    scripts.iter().flat_map(|script| script.packages.iter().cloned()).collect()
}

pub fn run(context: &Context) -> Result<Tally> {
    let scripts = scripts(&context.root, &context.filter)?;
    let modes = context.library.modes(&context.work)?;
    Ok(pool::for_each(&scripts, |script| {
        let start = Instant::now();
        let mut tally = Tally::default();
        if let Err(error) = script.test(context, &modes, &mut tally) {
            tally.fail(&script.name, format!("{error:#}"));
        }
        println!("  programs/{}: {tally}, {:.1} s", script.name, start.elapsed().as_secs_f64());
        tally
    }))
}

impl Script {
    fn read(path: PathBuf, name: String) -> Result<Script> {
        let text = fs::read_to_string(&path)?;
        let header = Header::parse(&text, "#", &["packages", "timeout"])?;
        let seconds = match header.one("timeout") {
            Some(value) => value
                .parse()
                .with_context(|| format!("timeout `{value}` is no number of seconds"))?,
            None => LIMIT_SECONDS,
        };
        Ok(Script {
            path,
            name,
            packages: header.words("packages"),
            limit: Duration::from_secs(seconds),
        })
    }

    fn test(&self, context: &Context, modes: &[Mode], tally: &mut Tally) -> Result<()> {
        if let Some(package) = packages::missing(&self.packages) {
            tally.skip(&self.name, format!("package {package} is not installed"));
            return Ok(());
        }
        let plain = self.run_once(context, &Library::Glibc, "plain", |_| {})?;
        ensure!(plain.success(), "fails without any library preloaded: {}", plain.describe());
        for mode in modes {
            let test = format!("{} [{}]", self.name, mode.name);
            if let Some(why) = &mode.unavailable {
                tally.skip(&test, why);
                continue;
            }
            let library = &context.library;
            let run = self.run_once(context, library, mode.name, |command| {
                library.environment(command, mode)
            })?;
            tally.count(&test, self.judge(&plain, &run, library, mode));
        }
        Ok(())
    }

    fn judge(
        &self,
        plain: &Finished,
        run: &Finished,
        library: &Library,
        mode: &Mode,
    ) -> Result<()> {
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

    /// Runs the script in an empty directory of its own. Programs come from the system's directories, as
    /// the packages install them.
    fn run_once(
        &self,
        context: &Context,
        library: &Library,
        name: &str,
        configure: impl FnOnce(&mut Command),
    ) -> Result<Finished> {
        let dir = context.work.join("programs").join(&self.name).join(name);
        fs::create_dir_all(&dir)?;
        fs::remove_dir_all(&dir)?;
        fs::create_dir_all(dir.join("work"))?;
        let mut command = Command::new("/bin/bash");
        command
            .arg(&self.path)
            .current_dir(dir.join("work"))
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", dir.join("work"))
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .env("LIBRARY", library.preload());
        configure(&mut command);
        process::run(&mut command, self.limit, &dir.join("run"), None)
    }
}
