//! Finds `libebbmalloc.so`.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use clap::Args;

use crate::inspect::{self, Elf};
use crate::output;
use crate::stop::Stop;

const NAME: &str = "libebbmalloc.so";
/// The name without which packages need no development files.
const SONAME: &str = "libebbmalloc.so.0";
const BUILD: &str = "cargo build --release -p ebbmalloc-capi";

#[derive(Args)]
pub struct LibraryOption {
    /// The ebbmalloc library [default: $EBB_LIBRARY, else libebbmalloc.so beside ebb or in ../lib]
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,
}

/// A library that can be preloaded.
pub struct Library {
    /// Absolute, with links resolved: as the kernel names it in a process's memory map.
    pub path: PathBuf,
    pub elf: Elf,
}

impl Library {
    /// Checks that a file is a shared library.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let real = path.canonicalize().map_err(|error| Stop::usage(format!("{shown}: {error}")))?;
        let content =
            std::fs::read(&real).map_err(|error| Stop::usage(format!("{shown}: {error}")))?;
        match inspect::elf(&content) {
            Some(elf) if elf.shared => Ok(Self { path: real, elf }),
            _ => Err(Stop::usage(format!("{shown}: not a shared library (an ELF .so file)"))),
        }
    }
}

impl LibraryOption {
    /// The library given by option or EBB_LIBRARY, or else the one where it is built or installed.
    pub fn find(&self) -> anyhow::Result<Library> {
        let named = self.library.clone().or_else(|| {
            env::var_os("EBB_LIBRARY").filter(|value| !value.is_empty()).map(Into::into)
        });
        if let Some(path) = named {
            return Library::open(&path);
        }
        let exe = env::current_exe().context("cannot find the path of ebb's own executable")?;
        let folder = exe.parent().unwrap_or(Path::new("/"));
        if let Some((cargo, source)) = started_by_cargo() {
            build(&cargo, &source, folder)?;
        }
        let multiarch = format!("../lib/{}-linux-gnu", env::consts::ARCH);
        let places = ["", "../lib", &multiarch].map(|place| folder.join(place).join(NAME));
        let sonames = places.each_ref().map(|path| path.with_file_name(SONAME));
        match places.iter().chain(&sonames).find(|path| path.exists()) {
            Some(path) => Library::open(path),
            None => Err(Stop::usage(format!(
                "{NAME} was not found. ebb looked for\n  {}\nBuild it with `{BUILD}`, or give its \
                 path with --library PATH",
                places.each_ref().map(|path| path.display().to_string()).join("\n  ")
            ))),
        }
    }
}

/// The path of cargo and the folder of this crate, if `cargo run` (or a test) started `ebb`. The
/// folder is not built in: a release is the same wherever it was built.
fn started_by_cargo() -> Option<(OsString, PathBuf)> {
    let ours = env::var_os("CARGO_PKG_NAME")? == env!("CARGO_PKG_NAME");
    let cargo = env::var_os("CARGO").filter(|_| ours)?;
    Some((cargo, env::var_os("CARGO_MANIFEST_DIR")?.into()))
}

/// Builds the library beside the executable: `cargo run` builds nothing but the executable itself.
fn build(cargo: &OsStr, source: &Path, folder: &Path) -> anyhow::Result<()> {
    let manifest = source.join("../../Cargo.toml");
    let profile = match folder.file_name() {
        Some(name) if name == "debug" => OsStr::new("dev"),
        Some(name) => name,
        None => return Ok(()),
    };
    let mut command = Command::new(cargo);
    command
        .args(["build", "-p", "ebbmalloc-capi", "--manifest-path"])
        .arg(manifest)
        .arg("--profile")
        .arg(profile)
        // It has no unwinder, whatever the settings of the cargo that started this.
        .env_remove("CARGO_PROFILE_DEV_PANIC");
    command.arg("--target-dir").arg(folder.parent().unwrap_or(folder)).stdout(Stdio::null());
    if folder.join(NAME).exists() {
        command.arg("--quiet");
    } else {
        output::remark(format_args!("building {NAME} ({BUILD})"));
    }
    let status = command.status().with_context(|| format!("cannot start {}", cargo.display()))?;
    anyhow::ensure!(status.success(), "building {NAME} failed ({status}); try `{BUILD}`");
    Ok(())
}
