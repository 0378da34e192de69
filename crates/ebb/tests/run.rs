//! Tests `ebb run` from the outside.

mod common;

use std::fs;
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
    ebb().args(["run", "--check", "--", "sh", "-c", "echo $EBB_CHECK"]).assert().stdout("1\n");
    ebb().args(["run", "--harden", "--", "sh", "-c", "echo $EBB_HARDEN"]).assert().stdout("1\n");
    let sampled = ["run", "--sample", "5000", "--", "sh", "-c", "echo $EBB_SAMPLE"];
    ebb().args(sampled).assert().stdout("5000\n");
    let set = ["--limit", "1G", "--set", "purge_delay=2s", "--set=explain"];
    let shown = ["--", "sh", "-c", "echo $EBB_LIMIT $EBB_PURGE_DELAY $EBB_EXPLAIN"];
    ebb().arg("run").args(set).args(shown).assert().success().stdout("1G 2s 1\n");
    ebb()
        .args(["run", "--set", "limits=1G", "--", "true"])
        .assert()
        .code(2)
        .stderr(contains("no option is named limits; there are mode, explain,"));
    ebb().args(["run", "--", "sh", "-c", "echo \"[$EBB_MODE$EBB_STATS]\""]).assert().stdout("[]\n");
    // Libraries that were already in LD_PRELOAD stay there, after ebbmalloc.
    let both = format!("{path}:libutil.so.1\n");
    ebb()
        .env("LD_PRELOAD", "libutil.so.1")
        .args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"])
        .assert()
        .stdout(both);
}

/// A limit that is not understood must not be no limit.
#[test]
fn a_program_without_its_limit_does_not_start() {
    ebb()
        .args(["run", "--limit", "much", "--", "echo", "started"])
        .assert()
        .code(78)
        .stdout("")
        .stderr(contains("EBB_LIMIT=much is not understood, so the program does not start"));
    ebb()
        .env("EBB_HARDN", "1")
        .args(["run", "--limit", "1.5GiB", "--explain", "--", "true"])
        .assert()
        .success()
        .stderr(contains("EBB_HARDN is no option and ignored; the nearest is EBB_HARDEN;"))
        .stderr(contains(", limit 1536.0 MiB (EBB_LIMIT)"));
}

/// The reported reasons are true: glibc registered rseq, a filter refuses it, or an emulator has
/// none.
#[test]
fn the_mode_is_explained() {
    let told = |command: &mut assert_cmd::Command| {
        let output = command.output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let explain = |mode: &str| {
        let mut command = ebb();
        command.args(["run", "--explain", "--mode", mode, "--", "true"]);
        command
    };
    let line = told(&mut explain("slot"));
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(line.contains(" mode slot (set by EBB_MODE; Linux "), "{line}");
    let line = told(&mut explain("auto"));
    if !line.contains(" mode percpu by ") {
        eprintln!("SKIPPED: no percpu mode here ({line})");
        return;
    }
    assert!(line.contains("(glibc registered rseq; Linux "), "{line}");
    assert!(line.contains("other modes: thread, slot)"), "{line}");
    // A user who turns rseq off does so for another library, which would find threads registered.
    let tunable = "glibc.malloc.check=0:glibc.pthread.rseq=0";
    let line = told(explain("auto").env("GLIBC_TUNABLES", tunable));
    assert!(line.contains(" mode thread (GLIBC_TUNABLES has glibc.pthread.rseq=0"), "{line}");
    let lines = told(explain("percpu").env("GLIBC_TUNABLES", tunable));
    let refused = "EBB_MODE=percpu is not possible: GLIBC_TUNABLES has";
    assert!(lines.contains(refused) && lines.contains("; using thread"), "{lines}");
    for (error, name) in [(libc::EPERM, "(EPERM)"), (libc::ENOSYS, "(ENOSYS)")] {
        let line = told_under_filter(error);
        assert!(line.contains(" mode thread (") && line.contains(name), "{line}");
    }
}

/// The message of a program for which the kernel refuses rseq(2) with this error.
fn told_under_filter(error: i32) -> String {
    use std::os::unix::process::CommandExt;
    let statement = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    // Loads the number of the system call. If it is rseq's, returns an error; else allows it.
    let mut filter = [
        statement(0x20, 0, 0, 0),
        statement(0x15, 0, 1, libc::SYS_rseq as u32),
        statement(0x06, 0, 0, libc::SECCOMP_RET_ERRNO | error as u32),
        statement(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let mut command = std::process::Command::new("true");
    command.env("LD_PRELOAD", library()).env("EBB_EXPLAIN", "1").env_remove("EBB_MODE");
    // SAFETY: makes system calls only, between fork and exec.
    unsafe {
        command.pre_exec(move || {
            let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            match libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    String::from_utf8(command.output().unwrap().stderr).unwrap()
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
        .stderr(contains("cannot execute /etc/passwd"));
    ebb().arg("run").assert().code(2);
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    common::script(&script, "#!/no/interpreter\n");
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
    common::install(common::executable(), &copy, 0o755);
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
    // Without development files there is only the soname.
    let soname = lib.join("libebbmalloc.so.0");
    fs::copy(library(), &soname).unwrap();
    installed().assert().success().stdout(contains("lib/libebbmalloc.so.0"));
    fs::rename(soname, lib.join("libebbmalloc.so")).unwrap();
    installed().assert().success().stdout(contains("lib/libebbmalloc.so\n"));
}

use predicates::prelude::PredicateBooleanExt;
