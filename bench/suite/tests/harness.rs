//! Tests the suite itself, on allocators with known results: `peers/slow` plays the library under
//! test.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

const SUITE: &str = env!("CARGO_BIN_EXE_suite");

fn target() -> &'static Path {
    allocators::target_of(Path::new(SUITE)).unwrap()
}

fn slow_library() -> PathBuf {
    allocators::build("slow", target()).unwrap()
}

/// Makes a fresh directory for results. What the suite builds is kept, and shared by the tests.
fn fresh(name: &str) -> PathBuf {
    let all = target().join("suite-tests");
    let out = all.join(name);
    let _ = fs::remove_dir_all(&out);
    fs::create_dir_all(&out).unwrap();
    fs::create_dir_all(all.join("work")).unwrap();
    symlink(all.join("work"), out.join("work")).unwrap();
    out
}

/// Prepares a run that measures glibc and the slow allocator.
fn suite(out: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(SUITE);
    command.args(["run", "--peers=glibc", "--out"]).arg(out).arg("--library").arg(slow_library());
    command.args(options);
    command
}

/// Returns the output of a command on both streams; checks whether it succeeds as expected.
fn messages(command: &mut Command, well: bool) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = [stdout, stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert_eq!(status.success(), well, "{text}");
    text
}

/// Returns the values of a figure in `results.csv` by case, allocator and round; each must be there
/// once.
fn figures(out: &Path, figure: &str) -> BTreeMap<(String, String, u32), f64> {
    let mut figures = BTreeMap::new();
    for line in fs::read_to_string(out.join("results.csv")).unwrap().lines().skip(1) {
        let fields: Vec<_> = line.split(',').collect();
        let [case, allocator, round, name, value] = fields[..] else { panic!("{line}") };
        if name == figure {
            let key = (case.to_string(), allocator.to_string(), round.parse().unwrap());
            let twice = figures.insert(key, value.parse().unwrap());
            assert!(twice.is_none(), "measured twice: {line}");
        }
    }
    figures
}

#[test]
fn a_slow_and_fat_allocator_comes_out_slow_and_fat() {
    let out = fresh("slow");
    let table = messages(&mut suite(&out, &["--only=basic/mixed"]), true);
    for figure in ["time_s", "peak_kib"] {
        let figures = figures(&out, figure);
        assert_eq!(figures.len(), 10, "five rounds, two allocators");
        for ((case, allocator, round), slow) in &figures {
            let glibc = figures[&(case.clone(), "glibc".into(), *round)];
            let slower = allocator != "glibc" && *slow > 1.5 * glibc;
            assert!(allocator == "glibc" || slower, "{figure}: {slow} against glibc's {glibc}");
        }
    }
    let rows = table.lines().filter(|line| line.starts_with("| basic/mixed ")).collect::<Vec<_>>();
    // Time, peak and end in the full tables; time and peak among the losses.
    assert_eq!(rows.len(), 5, "{table}");
    assert!(rows.iter().all(|row| row.contains("worse")), "{table}");
    for picture in ["time.svg", "memory.svg", "summary.svg"] {
        assert!(table.contains(picture) && out.join(picture).exists(), "{picture}");
    }
    assert_eq!(
        fs::read_to_string(out.join("results.md")).unwrap().lines().next(),
        table.lines().find(|line| line.starts_with("# "))
    );
}

#[test]
fn another_build_is_measured_beside_the_library() {
    let out = fresh("before");
    let mut command = suite(&out, &["--only=basic/start", "--repeat=2", "--before"]);
    let table = messages(command.arg(slow_library()), true);
    let names: Vec<_> = figures(&out, "time_s").into_keys().map(|(_, name, _)| name).collect();
    assert_eq!(names, ["before", "before", "ebbmalloc", "ebbmalloc", "glibc", "glibc"]);
    let section = table.split_once("## Against the build before").unwrap().1;
    let rows = section.lines().filter(|line| line.starts_with("| all ")).collect::<Vec<_>>();
    assert!(rows.len() == 1 && rows[0].matches("too few rounds").count() == 2, "{section}");
    assert!(out.join("libebbmalloc-before.so").exists());
}

#[test]
fn listing_sets_nothing_up() {
    let mut command = Command::new(SUITE);
    command.args(["run", "--library=/nowhere.so", "--out=/dev/null/out", "--list"]);
    let text = messages(&mut command, true);
    for case in ["basic/start ", "tokenizer/idle ", "zig/lower-1 ", "python/churn "] {
        assert!(text.lines().any(|line| line.starts_with(case)), "{case}: {text}");
    }
}

#[test]
fn an_interrupted_run_goes_on_where_it_was() {
    let out = fresh("resume");
    let options = ["--only=basic/start", "--repeat=100"];
    let mut begun =
        suite(&out, &options).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = || fs::read_to_string(out.join("results.csv")).unwrap_or_default().lines().count();
    while lines() < 30 {
        assert!(begun.try_wait().unwrap().is_none(), "ended by itself");
        thread::sleep(Duration::from_millis(5));
    }
    // SAFETY: a system call; our own child, not yet waited for.
    unsafe { libc::kill(begun.id() as i32, libc::SIGINT) };
    let output = begun.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("--resume goes on"), "{text}");

    let before = figures(&out, "time_s");
    assert!(before.len() < 200);
    messages(suite(&out, &options).arg("--resume"), true);
    let after = figures(&out, "time_s");
    assert_eq!(after.len(), 200);
    assert!(before.iter().all(|(run, value)| after[run] == *value), "measured anew");
}

#[test]
fn careful_modes_take_part_under_their_names() {
    let out = fresh("careful");
    messages(&mut suite(&out, &["--only=basic/start", "--repeat=1", "--careful"]), true);
    let runs = figures(&out, "time_s");
    let names: Vec<_> = runs.keys().map(|(_, allocator, _)| allocator.as_str()).collect();
    let expected = [
        "ebbmalloc",
        "ebbmalloc-check",
        "ebbmalloc-harden",
        "ebbmalloc-profile",
        "ebbmalloc-sample",
        "glibc",
    ];
    assert_eq!(names, expected);
    messages(&mut suite(&out, &["--only=basic/start", "--repeat=1", "--careful=harden"]), true);
    let names: Vec<_> = figures(&out, "time_s").into_keys().map(|(_, name, _)| name).collect();
    assert_eq!(names, ["ebbmalloc", "ebbmalloc-harden", "glibc"]);
    let text = messages(&mut suite(&out, &["--careful=much"]), false);
    assert!(text.contains("one of sample, harden, check"), "{text}");
    messages(&mut suite(&out, &["--only=basic/start", "--repeat=1", "--careful"]), true);
    let table = fs::read_to_string(out.join("results.md")).unwrap();
    assert!(table.contains("What looking for mistakes costs"), "{table}");
}

#[test]
fn another_build_cannot_resume() {
    let out = fresh("build");
    let options = ["--only=basic/start", "--repeat=1"];
    messages(&mut suite(&out, &options), true);
    let other = out.join("other.so");
    let mut content = fs::read(slow_library()).unwrap();
    content.push(0);
    fs::write(&other, content).unwrap();
    let mut command = Command::new(SUITE);
    command
        .args(["run", "--peers=glibc", "--resume", "--library"])
        .arg(&other)
        .arg("--out")
        .arg(&out);
    let text = messages(command.args(options), false);
    assert!(text.contains("another build of the library"), "{text}");
    assert_eq!(figures(&out, "time_s").len(), 2, "left alone");
}

#[test]
fn failures_are_named_and_stop_nobody() {
    for (how, end) in
        [("crash", "signal: 6"), ("exit", "exit status: 3"), ("hang", "did not end within 1 s")]
    {
        let out = fresh(how);
        let options = ["--only=basic/start", "--repeat=2", "--limit=1"];
        let text = messages(suite(&out, &options).env("PEER_SLOW", how), true);
        let line = format!("- ebbmalloc failed basic/start (rounds 1, 2): {end}");
        assert!(text.contains(&line) && text.contains(" failed |"), "{text}");
        assert_eq!(figures(&out, "time_s").len(), 2, "glibc's");
        assert_eq!(figures(&out, "failed").len(), 2, "the slow one's");
    }
}

#[test]
fn a_peer_that_does_not_build_is_named_and_stops_nobody() {
    let out = fresh("missing");
    let cargo = out.join("cargo");
    let script = "#!/bin/sh\ncase \"$*\" in *peer-snmalloc*) echo 'error: no' >&2; exit 1;; esac\n";
    let text = out.join("cargo.text");
    fs::write(&text, format!("{script}exec {} \"$@\"\n", env!("CARGO"))).unwrap();
    // Another process writes it: children of other tests that start now would inherit our writable
    // file, and it could not be executed.
    assert!(
        Command::new("install").arg("--mode=755").args([&text, &cargo]).status().unwrap().success()
    );
    let mut command = suite(&out, &["--only=basic/start", "--repeat=1", "--peers=snmalloc"]);
    let text = messages(command.env("CARGO", &cargo), true);
    assert!(text.contains("- snmalloc is missing: does not build (error: no)"), "{text}");
    assert_eq!(figures(&out, "time_s").len(), 2);
}

#[test]
fn wrong_names_are_told() {
    let out = fresh("names");
    for (option, message) in [
        ("--only=basics", "--only basics: no such group"),
        ("--only=basic/nope", "there are: basic/start, basic/mixed"),
        ("--peers=dlmalloc", "no such peer"),
        ("--repeat=0", "--repeat"),
        ("--limit=0", "--limit"),
        ("--resume", "no run has left its results"),
    ] {
        let mut command = suite(&out, &["--only=basic/start"]);
        if option.starts_with("--only") {
            command = suite(&out, &[]);
        }
        let text = messages(command.arg(option), false);
        assert!(text.contains(message), "{option}: {text}");
    }
    let mut command = Command::new(SUITE);
    command.args(["run", "--library=/nowhere.so", "--out"]).arg(&out);
    assert!(messages(&mut command, false).contains("--library /nowhere.so"));
    let mut command = Command::new(SUITE);
    command.args(["run", "--library=/nowhere.so", "--out=/dev/null/out"]);
    assert!(messages(&mut command, false).contains("--out /dev/null/out"));
    assert!(messages(&mut suite(&out, &["--list", "--only=basic"]), true).contains("basic/mixed"));

    let lock = File::create(out.join("lock")).unwrap();
    lock.lock().unwrap();
    let text = messages(&mut suite(&out, &["--only=basic/start"]), false);
    assert!(text.contains("another run is at work"), "{text}");
}
