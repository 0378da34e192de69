//! `ebb run` from the outside.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;

use common::{bare, ebb, library};
use predicates::str::contains;

#[test]
fn exit_codes_pass_through() {
    ebb().args(["run", "--", "sh", "-c", "exit 7"]).assert().code(7);
    ebb().args(["run", "true"]).assert().success();
}

#[test]
fn signals_pass_through() {
    let output = ebb().args(["run", "--", "sh", "-c", "kill -TERM $$"]).output().unwrap();
    assert_eq!(output.status.signal(), Some(15));
}

#[test]
fn streams_pass_through() {
    ebb()
        .args(["run", "--", "cat"])
        .write_stdin("to and fro")
        .assert()
        .success()
        .stdout("to and fro");
    ebb()
        .args(["run", "--", "sh", "-c", "echo out; echo err >&2"])
        .assert()
        .stdout("out\n")
        .stderr(contains("err\n"));
}

#[test]
fn the_library_is_in_the_program_and_options_reach_it() {
    let path = library().canonicalize().unwrap();
    let path = path.to_str().unwrap();
    ebb().args(["run", "--", "cat", "/proc/self/maps"]).assert().stdout(contains(path));
    ebb()
        .args(["run", "--mode", "slot", "--stats", "--", "sh", "-c", "echo $EBB_MODE $EBB_STATS"])
        .assert()
        .stdout("slot 1\n");
    ebb().args(["run", "--", "sh", "-c", "echo \"[$EBB_MODE$EBB_STATS]\""]).assert().stdout("[]\n");
    // What was to be preloaded anyway still is, after ebbmalloc.
    let both = format!("{path}:libutil.so.1\n");
    ebb()
        .env("LD_PRELOAD", "libutil.so.1")
        .args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"])
        .assert()
        .stdout(both);
}

#[test]
fn options_after_the_program_are_the_programs() {
    ebb().args(["run", "echo", "--stats", "-n", "--", "x"]).assert().stdout("--stats -n -- x\n");
}

#[test]
fn programs_that_are_not_there_or_no_programs() {
    ebb()
        .args(["run", "--", "no-such-program"])
        .assert()
        .code(127)
        .stderr(contains("no-such-program: not found"));
    ebb()
        .args(["run", "--", "/etc/passwd"])
        .assert()
        .code(126)
        .stderr(contains("/etc/passwd: cannot be executed"));
    ebb().arg("run").assert().code(2);
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    fs::write(&script, "#!/no/interpreter\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    ebb()
        .args(["run", "--"])
        .arg(&script)
        .assert()
        .code(127)
        .stderr(contains("interpreter /no/interpreter, which does not exist"));
}

#[test]
fn libraries_that_cannot_be_used() {
    let run = ["run", "--", "true"];
    bare()
        .env("EBB_LIBRARY", "/no/library.so")
        .args(run)
        .assert()
        .code(2)
        .stderr(contains("/no/library.so"));
    bare()
        .args(["run", "--library", "/etc/passwd", "--", "true"])
        .assert()
        .code(2)
        .stderr(contains("not a shared library"));
    let folder = tempfile::tempdir().unwrap();
    let spaced = folder.path().join("a b.so");
    fs::copy(library(), &spaced).unwrap();
    bare()
        .args(["run", "--library"])
        .arg(&spaced)
        .args(["--", "true"])
        .assert()
        .code(2)
        .stderr(contains("space or a colon"));
}

#[test]
fn a_library_that_is_nowhere_is_searched_where_it_is_installed() {
    let folder = tempfile::tempdir().unwrap();
    let (bin, lib) = (folder.path().join("bin"), folder.path().join("lib"));
    fs::create_dir_all(&bin).unwrap();
    fs::create_dir_all(&lib).unwrap();
    let copy = bin.join("ebb");
    fs::copy(common::executable(), &copy).unwrap();
    let installed = || {
        let mut command = assert_cmd::Command::new(&copy);
        command.env_remove("CARGO").env_remove("EBB_LIBRARY").args([
            "run",
            "--",
            "cat",
            "/proc/self/maps",
        ]);
        command
    };
    let places = contains("bin/libebbmalloc.so")
        .and(contains("../lib/libebbmalloc.so"))
        .and(contains("cargo build --release -p ebbmalloc-capi"));
    installed().assert().code(2).stderr(places);
    fs::copy(library(), lib.join("libebbmalloc.so")).unwrap();
    installed().assert().success().stdout(contains("lib/libebbmalloc.so"));
}

use predicates::prelude::PredicateBooleanExt;
