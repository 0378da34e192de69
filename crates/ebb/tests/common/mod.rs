//! What the tests of the command share.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use assert_cmd::Command;

/// `ebb` with the library at hand.
pub fn ebb() -> Command {
    let mut command = bare();
    command.env("EBB_LIBRARY", library());
    command
}

/// `ebb` as a user has it who set nothing.
pub fn bare() -> Command {
    let mut command = Command::new(executable());
    // Only lest a hanging program hangs the tests too.
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

/// Puts a copy of the executable `from` there, by a process of its own: a file that this one has open for writing
/// is open too in each child that another test starts just then, until that child executes its program, and so long
/// the kernel executes none from the file ("text file busy").
#[allow(dead_code, reason = "not every test file does it")]
pub fn install(from: &Path, to: &Path, mode: u32) {
    installing(from, to, mode).assert().success();
}

/// Puts a script there, and as `install` does.
#[allow(dead_code, reason = "not every test file does it")]
pub fn script(to: &Path, text: &str) {
    installing("/dev/stdin".as_ref(), to, 0o755).write_stdin(text).assert().success();
}

fn installing(from: &Path, to: &Path, mode: u32) -> Command {
    let mut command = Command::new("install");
    command.arg(format!("--mode={mode:o}")).args([from, to]);
    command
}

/// The program that takes memory and ends in the way it is told to.
#[allow(dead_code, reason = "not every test file starts it")]
pub fn holder() -> PathBuf {
    executable().with_file_name("examples").join("holder")
}
