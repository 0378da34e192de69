//! Sets up workloads: packages, builds, downloads, and a directory for their input.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use allocators::Peer;
use anyhow::{Context, Result, ensure};

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
}

impl Kit {
    pub fn new(out: &Path, library: &Path, peers: &[&'static Peer]) -> Result<Self> {
        let work = out.join("work");
        fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
        let cpus = std::thread::available_parallelism()?.get() as u32;
        let repository =
            allocators::workspace().parent().expect("the benchmarks lie in the repository").into();
        let allocators = peers.iter().map(|peer| peer.name).chain(["ebbmalloc"]).collect();
        let work = work.canonicalize()?;
        Ok(Self { work, library: library.into(), repository, cpus, allocators })
    }

    /// Returns the path of a file or directory of the benchmarks' workspace.
    pub fn source(&self, path: &str) -> PathBuf {
        allocators::workspace().join(path)
    }

    /// Installs those of Debian's packages that are missing.
    pub fn packages(&self, names: &[&str]) -> Result<()> {
        allocators::debian::install(names)
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

    /// Builds a package of the benchmarks' workspace with some features. Returns the directory of
    /// its programs. Each set of features has its own; builds share only their dependencies.
    pub fn build(&self, package: &str, features: &str) -> Result<PathBuf> {
        let name = if features.is_empty() { "default" } else { features };
        let target = self.work.join("build").join(name);
        if !target.join("release").exists() {
            eprintln!("building {package} ({name}), which can take minutes");
        }
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo.args(["build", "--quiet", "--release", "--package", package, "--features", features]);
        cargo.env("CARGO_BUILD_BUILD_DIR", self.work.join("build/shared"));
        run(cargo.arg("--target-dir").arg(&target).current_dir(allocators::workspace()))?;
        Ok(target.join("release"))
    }

    /// Returns a file of the work directory, and has `make` write it if it is missing.
    pub fn once(&self, name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let path = self.work.join(name);
        if !path.exists() {
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

/// Runs a command of the set-up; its messages are shown only if it fails.
pub fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().display().to_string();
    let output = command.output().with_context(|| format!("starting {name}"))?;
    let messages = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name}: {}: {}", output.status, messages.trim());
    Ok(())
}
