//! `cargo xtask release`: makes all that a release consists of, for this system, from the last
//! commit. Two builds in different folders are the same to the byte; `--twice` shows it.

use crate::cargo::cargo;
use crate::install::VERSION;
use crate::process::said;
use crate::workspace;
use anyhow::{Context as _, Result, ensure};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SBOM_TOOL: &str = "cargo-cyclonedx";

#[derive(clap::Args)]
pub struct Args {
    /// Make everything a second time, from a clone elsewhere, and compare
    #[arg(long)]
    twice: bool,
}

pub fn run(args: &Args) -> Result<bool> {
    let root = workspace::root()?;
    let target = workspace::target(&root);
    let tools = tools(&root, &target)?;
    // Both builds are of this commit, whatever is committed meanwhile.
    let commit = said(Command::new("git").args(["rev-parse", "HEAD"]).current_dir(&root))?;
    let first = make(&root, &commit, &target.join("release-work"), &tools)?;
    let artefacts = target.join("release-artefacts");
    let _ = fs::remove_dir_all(&artefacts);
    fs::rename(&first, &artefacts)?;
    if args.twice {
        let folder = target.join("release-work-in-another-folder");
        let second = make(&root, &commit, &folder, &tools)?;
        let mut diff = Command::new("diff");
        said(diff.arg("-r").args([&artefacts, &second])).context("two builds differ")?;
        println!("a second build in another folder is the same, to the byte");
    }
    print!("{}", fs::read_to_string(artefacts.join("SHA256SUMS"))?);
    println!("in {}", artefacts.display());
    Ok(true)
}

/// Installs the tool for bills of materials, unless it is there.
fn tools(root: &Path, target: &Path) -> Result<PathBuf> {
    let tools = target.join("tools");
    if !tools.join("bin").join(SBOM_TOOL).exists() {
        println!("installing {SBOM_TOOL}");
        let mut install = cargo(root);
        install.args(["install", "--quiet", "--locked", SBOM_TOOL, "--root"]).arg(&tools);
        said(&mut install)?;
    }
    Ok(tools.join("bin"))
}

/// Makes all artefacts from a clone in the folder `work`. Returns the folder that has nothing else.
fn make(root: &Path, commit: &str, work: &Path, tools: &Path) -> Result<PathBuf> {
    let _ = fs::remove_dir_all(work);
    let (source, made) = (work.join("source"), work.join("made"));
    fs::create_dir_all(&made)?;
    println!("building in {}", work.display());
    said(Command::new("git").args(["clone", "--quiet", "--no-checkout"]).args([root, &source]))?;
    let mut checkout = Command::new("git");
    said(checkout.args(["checkout", "--quiet", "--detach", commit]).current_dir(&source))?;
    let epoch = said(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(&source))?;
    let host = said(Command::new("rustc").arg("--print=host-tuple"))?;
    let build = Build { root: source, target: work.join("target"), epoch, host, tools };

    build.run(&["xtask", "deb"], &made, &build.target.join("deb"), "deb")?;
    build.run(&["xtask", "wheel"], &made, &build.target.join("wheel/dist"), "whl")?;
    build.archive(work, &made)?;
    // Both at once: the second depends on the first, which is not on crates.io. The tests' step
    // `crate` builds them.
    let package = [
        "package",
        "--quiet",
        "--no-verify",
        "--package",
        "ebbmalloc",
        "--package",
        "ebbmalloc-pprof",
    ];
    build.run(&package, &made, &build.target.join("package"), "crate")?;
    build.materials(&made)?;
    let sums = "LC_ALL=C sha256sum -- * > ../SHA256SUMS && mv ../SHA256SUMS .";
    said(Command::new("sh").args(["-ec", sums]).current_dir(&made))?;
    Ok(made)
}

struct Build<'a> {
    root: PathBuf,
    target: PathBuf,
    epoch: String,
    host: String,
    tools: &'a Path,
}

impl Build<'_> {
    /// Runs cargo so that no path of this machine gets into a file, and the time is the commit's.
    fn cargo(&self, arguments: &[&str]) -> Result<()> {
        let home = env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = home.or_else(|| Some(env::home_dir()?.join(".cargo"))).context("no home")?;
        let flags = [(&self.root, "/ebbmalloc"), (&self.target, "/target"), (&home, "/cargo")]
            .map(|(path, to)| format!("--remap-path-prefix={}={to}", path.display()));
        let variable = self.host.replace('-', "_").to_uppercase();
        let mut command = cargo(&self.root);
        command
            .args(arguments)
            .env("CARGO_TARGET_DIR", &self.target)
            .env(format!("CARGO_TARGET_{variable}_RUSTFLAGS"), flags.join(" "))
            .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
            .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
            .env("CARGO_INCREMENTAL", "0")
            .env("SOURCE_DATE_EPOCH", &self.epoch);
        said(&mut command)?;
        Ok(())
    }

    /// Runs cargo and takes the files with this ending that it left in a folder.
    fn run(&self, arguments: &[&str], made: &Path, folder: &Path, ending: &str) -> Result<()> {
        self.cargo(arguments)?;
        let mut count = 0;
        for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.extension().is_some_and(|found| found == ending) {
                fs::copy(&path, made.join(path.file_name().context("no name")?))?;
                count += 1;
            }
        }
        ensure!(count > 0, "cargo {} left no .{ending} file", arguments.join(" "));
        Ok(())
    }

    /// What `cargo xtask install` installs, as an archive.
    fn archive(&self, work: &Path, made: &Path) -> Result<()> {
        let name = format!("ebbmalloc-{VERSION}-{}", self.host);
        let tree = work.join(&name);
        self.cargo(&["xtask", "install", "--prefix", &tree.to_string_lossy()])?;
        let mut tar = Command::new("tar");
        tar.args([
            "--sort=name",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
            "--mode=u=rwX,go=rX",
        ])
        .arg(format!("--mtime=@{}", self.epoch))
        .args(["--use-compress-program=xz -9 -T1", "-cf"])
        .arg(made.join(format!("{name}.tar.xz")))
        .arg(&name)
        .current_dir(work);
        said(&mut tar)?;
        Ok(())
    }

    /// The bill of materials: every crate that is in the command and the libraries.
    fn materials(&self, made: &Path) -> Result<()> {
        let mut tool = Command::new(self.tools.join(SBOM_TOOL));
        tool.args(["cyclonedx", "--format", "json", "--spec-version", "1.5", "--quiet"])
            .args(["--override-filename", "sbom", "--manifest-path"])
            .arg(self.root.join("crates/ebb/Cargo.toml"))
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("SOURCE_DATE_EPOCH", &self.epoch);
        said(&mut tool)?;
        for name in ["ebb", "ebbmalloc", "ebbmalloc-pprof"] {
            let path = self.root.join(format!("crates/{name}/sbom.json"));
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            // It names crates of the workspace by their place.
            let text = text.replace(&*self.root.to_string_lossy(), "/ebbmalloc");
            fs::write(made.join(format!("{name}-{VERSION}.cdx.json")), text)?;
        }
        Ok(())
    }
}
