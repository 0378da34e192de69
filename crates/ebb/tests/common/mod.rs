//! Helpers of the tests of the command.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use assert_cmd::Command;

/// `ebb` with the library named in its environment.
pub fn ebb() -> Command {
    let mut command = bare();
    command.env("EBB_LIBRARY", library());
    command
}

/// `ebb` without any setting of the user.
pub fn bare() -> Command {
    let mut command = Command::new(executable());
    // Only so that a hanging program does not hang the tests too.
    command.timeout(Duration::from_secs(300));
    for name in
        ["EBB_LIBRARY", "EBB_MODE", "EBB_STATS", "EBB_EXPLAIN", "LD_PRELOAD", "PYTHONMALLOC"]
    {
        command.env_remove(name);
    }
    command
}

pub fn executable() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_ebb"))
}

/// The library named by EBB_LIBRARY, or the one that `ebb` has cargo build for itself.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        if let Some(path) = std::env::var_os("EBB_LIBRARY") {
            return path.into();
        }
        bare().args(["run", "--", "true"]).assert().success();
        executable().with_file_name("libebbmalloc.so")
    })
}

/// Copies the executable `from` to `to`, by a process of its own. A file that this process has open
/// for writing is open too in each child that another test starts at that moment, until the child
/// executes its program. Meanwhile the kernel refuses to execute the file ("text file busy").
#[allow(dead_code, reason = "not every test file does it")]
pub fn install(from: &Path, to: &Path, mode: u32) {
    installing(from, to, mode).assert().success();
}

/// Writes a script to `to`, in the same way as `install`.
#[allow(dead_code, reason = "not every test file does it")]
pub fn script(to: &Path, text: &str) {
    installing("/dev/stdin".as_ref(), to, 0o755).write_stdin(text).assert().success();
}

fn installing(from: &Path, to: &Path, mode: u32) -> Command {
    let mut command = Command::new("install");
    command.arg(format!("--mode={mode:o}")).args([from, to]);
    command
}

/// The program that allocates memory and ends in the given way.
#[allow(dead_code, reason = "not every test file starts it")]
pub fn holder() -> PathBuf {
    let holder = executable().with_file_name("examples").join("holder");
    // With `--test`, cargo builds no examples.
    assert!(holder.exists(), "first run `cargo build --package ebb --examples`");
    holder
}
