//! Sets up workloads: packages, builds, downloads, and a directory for their input.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use allocators::Peer;
use anyhow::{Context, Error, Result, ensure};

use crate::workloads::drawn::Draw;

pub struct Kit {
    /// Directory for what workloads build, download and generate; kept between runs.
    pub work: PathBuf,
    /// The shared library of the allocator under test.
    pub library: PathBuf,
    /// The allocator's own workspace, for programs that build it in.
    pub repository: PathBuf,
    /// CPUs that this process may run on.
    pub cpus: u32,
    /// Names of the allocators of the run, for programs that build them in.
    pub allocators: Vec<&'static str>,
    /// Which programs of the group `drawn` take part.
    pub draw: Draw,
    /// Nothing is installed, built or run: the cases are only listed.
    pub only_listing: bool,
    /// Cases that cannot be had while the rest of their group can, and why.
    missing: RefCell<Vec<String>>,
}

impl Kit {
    pub fn new(out: &Path, library: &Path, peers: &[&'static Peer], draw: Draw) -> Result<Self> {
        let work = out.join("work");
        fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
        let allocators = peers.iter().map(|peer| peer.name).chain(["ebbmalloc"]).collect();
        let work = work.canonicalize()?;
        Ok(Self {
            work,
            library: library.into(),
            repository: repository(),
            cpus: cpus()?,
            allocators,
            draw,
            only_listing: false,
            missing: RefCell::default(),
        })
    }

    /// For cases that are listed and never run: sets nothing up.
    pub fn for_listing(draw: Draw) -> Result<Self> {
        Ok(Self {
            work: PathBuf::new(),
            library: PathBuf::new(),
            repository: repository(),
            cpus: cpus()?,
            allocators: Vec::new(),
            draw,
            only_listing: true,
            missing: RefCell::default(),
        })
    }

    /// Notes a case, group or peer that cannot be had. The run goes on; the report names it.
    pub fn note_missing(&self, name: &str, error: &Error) {
        let text = format!("{name} is missing: {error:#}");
        eprintln!("{text}");
        self.missing.borrow_mut().push(text);
    }

    /// Takes what was noted as missing.
    pub fn take_missing(&self) -> Vec<String> {
        self.missing.take()
    }

    /// Returns the path of a file or directory of the benchmarks' workspace.
    pub fn source(&self, path: &str) -> PathBuf {
        allocators::workspace().join(path)
    }

    /// Installs those of Debian's packages that are missing.
    pub fn packages(&self, names: &[&str]) -> Result<()> {
        if self.only_listing { Ok(()) } else { allocators::debian::install(names) }
    }

    /// What a program prints that was set up before, trimmed.
    pub fn output_of(&self, program: &Path, arguments: &[&str]) -> Result<String> {
        if self.only_listing {
            return Ok(String::new());
        }
        allocators::command_output(&program.to_string_lossy(), arguments)
    }

    /// Makes an environment of Debian's Python with packages from PyPI. Returns the interpreter.
    pub fn python(&self, name: &str, packages: &[&str]) -> Result<PathBuf> {
        self.packages(&["python3", "python3-venv"])?;
        let home = self.work.join(format!("python-{name}"));
        let python = home.join("bin/python");
        self.once(&format!("python-{name}.done"), |_| {
            run(Command::new("/usr/bin/python3").args(["-m", "venv"]).arg(&home))?;
            run(Command::new(&python)
                .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
                .args(packages))
        })?;
        Ok(python)
    }

    /// Installs packages from crates.io (`NAME@VERSION`). Returns the directory of their programs.
    pub fn crates(&self, name: &str, packages: &[&str]) -> Result<PathBuf> {
        let root = self.once(&format!("crates-{name}"), |root| {
            run(cargo().args(["install", "--quiet", "--locked", "--root"]).arg(root).args(packages))
        })?;
        Ok(root.join("bin"))
    }

    /// Installs packages from npm (`NAME@VERSION`). Returns the directory of their programs.
    pub fn npm(&self, name: &str, packages: &[&str]) -> Result<PathBuf> {
        self.packages(&["nodejs"])?;
        // In Debian npm is another package; others have it in that of node.
        if self.output_of(Path::new("npm"), &["--version"]).is_err() {
            self.packages(&["npm"])?;
        }
        let root = self.once(&format!("npm-{name}"), |root| {
            let mut npm = Command::new("npm");
            npm.args(["install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"]);
            run(npm.arg("--prefix").arg(root).args(packages))
        })?;
        Ok(root.join("node_modules/.bin"))
    }

    /// Builds a package of the benchmarks' workspace with some features. Returns the directory of
    /// its programs. Each set of features has its own; builds share only their dependencies.
    pub fn build(&self, package: &str, features: &str) -> Result<PathBuf> {
        let name = if features.is_empty() { "default" } else { features };
        let target = self.work.join("build").join(name);
        if self.only_listing {
            return Ok(target.join("release"));
        }
        if !target.join("release").exists() {
            eprintln!("building {package} ({name}), which can take minutes");
        }
        let mut cargo = cargo();
        cargo.args(["build", "--quiet", "--release", "--package", package, "--features", features]);
        cargo.env("CARGO_BUILD_BUILD_DIR", self.work.join("build/shared"));
        run(cargo.arg("--target-dir").arg(&target).current_dir(allocators::workspace()))?;
        Ok(target.join("release"))
    }

    /// Returns a file of the work directory, and has `make` write it if it is missing.
    pub fn once(&self, name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let path = self.work.join(name);
        if !path.exists() && !self.only_listing {
            eprintln!("making {name}");
            let partial = self.work.join(format!("{name}.partial"));
            // Left by an attempt that was interrupted.
            let _ = fs::remove_dir_all(&partial).or_else(|_| fs::remove_file(&partial));
            make(&partial).with_context(|| format!("making {name}"))?;
            if partial.exists() {
                fs::rename(&partial, &path)?;
            } else {
                // `make` wrote no file; the empty one notes that it has run.
                fs::write(&path, "")?;
            }
        }
        Ok(path)
    }
}

/// The cargo that runs this, or else that of the path.
fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
}

/// CPUs that this process may run on.
fn cpus() -> Result<u32> {
    Ok(std::thread::available_parallelism()?.get() as u32)
}

fn repository() -> PathBuf {
    allocators::workspace().parent().expect("the benchmarks lie in the repository").into()
}

/// Runs a command of the set-up; its messages are shown only if it fails.
pub fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().display().to_string();
    let output = command.output().with_context(|| format!("starting {name}"))?;
    let messages = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name}: {}: {}", output.status, messages.trim());
    Ok(())
}
