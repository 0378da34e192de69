//! Tests `ebb compare` from the outside: its measurements and its messages.

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{bare, ebb, executable, holder, library};
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde_json::Value;

const MIB: f64 = 1024.0 * 1024.0;

/// The result of comparing a program, in one round.
fn compare(program: &[&str]) -> Value {
    let output = ebb()
        .args(["compare", "-n", "1", "--warmup", "0", "--json", "--"])
        .args(program)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A metric of the first run on the system's allocator, in MiB; `None` if it could not be measured.
fn mib(result: &Value, metric: &str) -> Option<f64> {
    result["allocators"][0]["samples"][0][metric].as_f64().map(|bytes| bytes / MIB)
}

fn notes(result: &Value) -> String {
    result["notes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|note| note.as_str().unwrap())
        .collect::<Vec<_>>()
        .join("\n")
}

/// Resident memory at the end of a program that allocated 64 MiB.
fn end(way: &str) -> Option<f64> {
    let result = compare(&[holder().to_str().unwrap(), way, "64"]);
    assert!(mib(&result, "peak_bytes").unwrap() > 64.0, "{way}: {result:#}");
    mib(&result, "end_bytes")
}

#[test]
fn memory_at_the_end_is_that_of_the_end() {
    let holds = 64.0..72.0;
    assert!(holds.contains(&end("keep").unwrap()));
    assert!(end("free").unwrap() < 16.0);
    assert!(holds.contains(&end("exit-from-thread").unwrap()));
    assert!(holds.contains(&end("main-thread-leaves").unwrap()));
    // Another program replaced this one unseen: no figure is better than that of the one before.
    assert_eq!(end("exec-from-thread"), None);
}

#[test]
fn small_programs_and_large_children_have_their_own_peaks() {
    assert!(mib(&compare(&["true"]), "peak_bytes").unwrap() < 4.0);
    let child = format!("{} keep 64; true", holder().display());
    let result = compare(&["sh", "-c", &child]);
    assert!(mib(&result, "peak_bytes").unwrap() > 64.0);
    assert!(mib(&result, "end_bytes").unwrap() < 8.0);
}

#[test]
fn json_has_every_allocator_and_run() {
    let output = ebb()
        .args(["compare", "-n", "2", "--json", "--allocator"])
        .arg(format!("again={}", library().display()))
        .args(["--", "true"])
        .output()
        .unwrap();
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<_> = result["allocators"]
        .as_array()
        .unwrap()
        .iter()
        .map(|allocator| allocator["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["system", "ebbmalloc", "again"]);
    assert_eq!(result["program"], serde_json::json!(["true"]));
    for allocator in result["allocators"].as_array().unwrap() {
        let samples = allocator["samples"].as_array().unwrap();
        assert_eq!(samples.len(), 2);
        assert!(samples.iter().all(
            |sample| sample["wall_seconds"].as_f64().unwrap() > 0.0 && sample["exit_code"] == 0
        ));
        assert!(allocator["metrics"]["wall_seconds"]["median"].is_number());
    }
    assert_eq!(result["allocators"][0]["loaded"], Value::Null);
    assert_eq!(result["allocators"][1]["loaded"], true);
    assert_eq!(result["allocators"][1]["verdict"], "too few runs for a verdict");
    assert_eq!(
        result["allocators"][2]["metrics"]["wall_seconds"]["comparison"]["verdict"],
        "too-few-runs"
    );
}

#[test]
fn the_table_has_medians_and_verdicts() {
    let assert = ebb().args(["compare", "--warmup", "0", "--", "true"]).assert().success();
    let table = contains("wall time")
        .and(contains("peak memory"))
        .and(contains("memory at end"))
        .and(contains("minor faults"));
    let assert = assert.stdout(
        table
            .and(contains("system"))
            .and(contains("ebbmalloc"))
            .and(contains("all 5 paired runs agree")),
    );
    // Without a terminal: one line per round, and no colours.
    assert
        .stderr(contains("ebb: round 5 of 5: system ").and(contains("ebbmalloc")))
        .stdout(contains("\x1b").not());
}

#[test]
fn stops_and_signals_take_effect_as_without_tracing() {
    let folder = tempfile::tempdir().unwrap();
    let seen = folder.path().join("seen");
    // A process beside the program sees that it is stopped, and only then lets it go on. What it
    // sees may be that the signal is about to be delivered, so it does so several times.
    let script = format!(
        "me=$$; (until test \"$(tail -n 1 {0} 2>&1)\" = usr1 \
         && grep -q '^State:.*top' /proc/$me/status; do sleep 0.01; done; echo stopped >> {0}; \
         for again in 1 2 3 4 5; do kill -CONT $me; sleep 0.1; done) & \
         trap 'echo usr1 >> {0}' USR1; kill -USR1 $me; kill -STOP $me; wait; echo went on >> {0}",
        seen.display()
    );
    compare(&["sh", "-c", &script]);
    assert_eq!(fs::read_to_string(&seen).unwrap(), "usr1\nstopped\nwent on\n".repeat(2));

    // Signals that are unknown by name end a program as well.
    let real_time = ["--warmup", "0", "-n", "1", "--json", "-i", "--"];
    let output = ebb()
        .arg("compare")
        .args(real_time)
        .arg(holder())
        .arg("real-time-signals")
        .output()
        .unwrap();
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["allocators"][0]["samples"][0]["signal"], libc::SIGRTMIN() + 4);
}

#[test]
fn a_failing_program_stops_the_comparison() {
    let failing = ["compare", "--", "sh", "-c", "echo first >&2; echo second >&2; exit 3"];
    let words = contains("failed on system (warm-up 1 of 1): exit status: 3")
        .and(contains("first\n  second"))
        .and(contains("--ignore-failure"));
    ebb().args(failing).assert().code(1).stdout("").stderr(words);
    let killed = ["compare", "--warmup", "0", "--", "sh", "-c", "kill -SEGV $$"];
    ebb().args(killed).assert().code(1).stderr(contains("SIGSEGV").and(contains("round 1 of 5")));
}

#[test]
fn a_failure_on_one_allocator_only_is_loud() {
    let only = r#"case "$LD_PRELOAD" in ?*) exit 9;; esac"#;
    let stopped = contains("failed on ebbmalloc")
        .and(contains("exit status: 9"))
        .and(contains("It succeeded on: system"));
    ebb().args(["compare", "--", "sh", "-c", only]).assert().code(1).stderr(stopped);
    let ignored =
        contains("FAILED: the program failed in 2 of 2 runs on ebbmalloc, and in none on system");
    ebb()
        .args(["compare", "-n", "2", "--ignore-failure", "--", "sh", "-c", only])
        .assert()
        .success()
        .stdout(ignored);
}

#[test]
fn input_is_read_anew_and_output_is_let_through_on_demand() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("input");
    fs::write(&input, "twice\n").unwrap();
    let through = ["compare", "-n", "1", "--warmup", "0", "--json", "--output", "--input"];
    let output = ebb().args(through).arg(&input).args(["--", "cat"]).output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap().matches("twice\n").count(), 2);
    assert!(serde_json::from_slice::<Value>(&output.stdout).is_ok());
    ebb()
        .args(["compare", "--input", "/no/file", "--", "cat"])
        .assert()
        .code(2)
        .stderr(contains("/no/file"));
}

#[test]
fn nonsense_is_refused() {
    let refused = |arguments: &[&str], words: &str| {
        ebb()
            .arg("compare")
            .args(arguments)
            .args(["--", "true"])
            .assert()
            .code(2)
            .stderr(contains(words));
    };
    refused(&["-n", "0"], "0 is not in 1..");
    refused(&["-n", "x"], "invalid value 'x'");
    refused(&["--warmup", "-1"], "-1");
    refused(&["--allocator", "jemalloc"], "expected NAME=PATH.so");
    refused(&["--allocator", "=x"], "expected NAME=PATH.so");
    refused(&["--allocator", "a=/no/file.so"], "/no/file.so: No such file");
    refused(&["--allocator", "a=/etc/passwd"], "not a shared library");
    let path = library().display();
    let system = format!("system={path}");
    refused(&["--allocator", &system], "another allocator has the name system already");
    refused(
        &["--allocator", &format!("a={path}"), "--allocator", &format!("a={path}")],
        "another allocator has the name a already",
    );
    ebb().args(["compare", "--", "no-such-program"]).assert().code(127);
    ebb().args(["compare", "--", "/etc"]).assert().code(126);
}

#[test]
fn static_programs_are_recognised() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("static.rs"), "fn main() {}").unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or("rustc".into());
    let built = Command::new(rustc)
        .current_dir(&folder)
        .args(["-C", "target-feature=+crt-static", "static.rs"])
        .status()
        .unwrap();
    assert!(built.success());
    let result = compare(&[folder.path().join("static").to_str().unwrap()]);
    assert!(notes(&result).contains("statically linked"), "{result:#}");
    assert_eq!(result["allocators"][1]["loaded"], false);
    assert!(result["allocators"][1]["verdict"].as_str().unwrap().contains("not loaded"));
}

#[test]
fn set_user_id_programs_are_recognised() {
    if !rustix::process::getuid().is_root() {
        return eprintln!("skipped: only root can make a set-user-id program of another user");
    }
    let (_folder, copy) = copy_of_sleep(0o755);
    chown(&copy, Some(65534), None).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).unwrap();
    let result = compare(&[copy.to_str().unwrap(), "0.3"]);
    assert!(notes(&result).contains("is set-user-id"), "{result:#}");
    assert_eq!(result["allocators"][1]["loaded"], false);
}

#[test]
fn scripts_are_followed() {
    let folder = tempfile::tempdir().unwrap();
    let script = |name: &str, text: &str| {
        let path = folder.path().join(name);
        common::script(&path, text);
        path.to_str().unwrap().to_owned()
    };
    let bare = compare(&[&script("bare", "exit 0\n")]);
    assert!(notes(&bare).contains("bare has no `#!` line"), "{bare:#}");
    assert_eq!(bare["allocators"][1]["loaded"], true);
    let good = compare(&[&script("good", "#!/usr/bin/env sh\nexit 0\n")]);
    assert!(!notes(&good).contains("#!"), "{good:#}");
    let lost = script("lost", "#!/no/interpreter\n");
    ebb()
        .args(["compare", "--", &lost])
        .assert()
        .code(127)
        .stderr(contains("interpreter /no/interpreter, which does not exist"));
}

#[test]
fn python_gets_its_note_however_it_is_started() {
    let python = Path::new("/usr/bin/python3");
    if !python.exists() {
        return eprintln!("skipped: no {}", python.display());
    }
    let started_by_script = compare(&["sh", "-c", "exec /usr/bin/python3 -c pass"]);
    assert!(notes(&started_by_script).contains("PYTHONMALLOC=malloc"), "{started_by_script:#}");
    let bypassed = compare(&["env", "PYTHONMALLOC=malloc", "/usr/bin/python3", "-c", "pass"]);
    assert!(
        notes(&bypassed).contains("PYTHONMALLOC=malloc"),
        "the setting inside env cannot be seen"
    );
    let output = ebb()
        .env("PYTHONMALLOC", "malloc")
        .args(["compare", "-n", "1", "--json", "--", "/usr/bin/python3", "-c", "pass"])
        .output()
        .unwrap();
    assert!(!String::from_utf8(output.stdout).unwrap().contains("pymalloc"));
}

#[test]
fn without_permission_to_trace_memory_is_sampled() {
    if Command::new("strace").arg("-V").output().is_err() {
        return eprintln!("skipped: no strace on this machine, which would keep ebb from tracing");
    }
    // A process that strace traces cannot be traced by another.
    let output = Command::new("strace")
        .args(["-f", "-qq", "-e", "trace=none", "-o", "/dev/null"])
        .arg(executable())
        .args(["compare", "-n", "1", "--warmup", "0", "--json", "--", "sleep", "0.2"])
        .env("EBB_LIBRARY", library())
        .output()
        .unwrap();
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(notes(&result).contains("cannot be traced"), "{result:#}");
    assert!(mib(&result, "end_bytes").is_some_and(|mib| mib > 0.0));
    assert_eq!(result["allocators"][1]["loaded"], true);
}

#[test]
fn interruption_ends_the_program_and_ebb() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let script = format!(
        "trap '' INT; echo $$ > {0}.new; mv {0}.new {0}; while :; do sleep 1; done",
        file.display()
    );
    let mut child = Command::new(executable())
        .env("EBB_LIBRARY", library())
        .args(["compare", "--", "sh", "-c", &script])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !file.exists() {
        assert!(child.try_wait().unwrap().is_none(), "ebb ended by itself");
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = fs::read_to_string(&file).unwrap();
    // SAFETY: sends a signal to a child that was not reaped yet.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "the program lives on");
}

#[test]
fn an_earlier_preload_is_kept_and_told() {
    let output = bare()
        .env("EBB_LIBRARY", library())
        .env("LD_PRELOAD", "libutil.so.1")
        .args(["compare", "-n", "1", "--json", "--", "true"])
        .output()
        .unwrap();
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(notes(&result).contains("LD_PRELOAD is libutil.so.1 already"), "{result:#}");
}

fn copy_of_sleep(mode: u32) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path().join("sleep");
    common::install("/bin/sleep".as_ref(), &copy, mode);
    (folder, copy)
}
