//! Leaks from public reports, rebuilt small in tests/leaks: `ebb profile` names the line of each.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::ebb;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/leaks");

fn source(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// The number of the line that the source marks as the leak.
fn marked_line(name: &str) -> usize {
    let text = fs::read_to_string(source(name)).unwrap();
    let is_marked = |line: &str| line.ends_with(" LEAK");
    text.lines().position(is_marked).expect("a line is marked") + 1
}

/// The two lines of the first stack that `ebb profile` shows of a command.
fn first_stack(moment: &[&str], command: &[&str]) -> String {
    let mut profile = ebb();
    profile.args(["profile", "--mean", "64K"]).args(moment).arg("--").args(command);
    // Otherwise Python takes its small blocks from memory of its own.
    let output = profile.env("PYTHONMALLOC", "malloc").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{error}");
    let (_, stacks) = text.split_once("stack: innermost first\n").expect("a table");
    let stack: Vec<_> = stacks.lines().take(2).collect();
    eprintln!("{text}{error}");
    stack.join("\n")
}

/// Builds a program with the compiler and its options, and finds the line in the first stack, which
/// begins in `main`.
fn names_the_line(name: &str, function: &str, compiler: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let mut build = Command::new(compiler[0]);
    build.args(&compiler[1..]).arg("-o").arg(&program).arg(source(name));
    assert!(build.status().unwrap().success(), "{build:?}");
    let stack = first_stack(&["--at-end"], &[program.to_str().unwrap()]);
    let place = format!("{function} ({name}:{})", marked_line(name));
    assert!(stack.contains(&place), "{place} is not in it: {stack}");
    assert!(stack.contains("main ("), "{stack}");
}

#[test]
fn streams_that_are_not_ended() {
    names_the_line("decoder.c", "stream_begin", &["cc", "-g", "-O1"]);
}

#[test]
fn nodes_that_an_error_path_forgets() {
    names_the_line("parser.c", "new_text", &["cc", "-g", "-O1"]);
}

/// Segments that lie apart, with the unwinding table in another one than the code.
#[test]
fn nodes_that_a_program_with_large_pages_forgets() {
    let flags = ["-Wl,-z,max-page-size=0x200000", "-Wl,-z,separate-code", "-fomit-frame-pointer"];
    names_the_line("parser.c", "new_text", &[&["cc", "-g", "-O1"][..], &flags].concat());
}

#[test]
fn a_function_that_holds_itself() {
    names_the_line("next.cpp", "buffer", &["c++", "-g", "-O1"]);
}

#[test]
fn a_set_that_only_grows() {
    names_the_line("exposures.rs", "Sampling::is_new", &["rustc", "-g", "-O", "--edition=2024"]);
}

/// A Python that names its functions to others, as it can since version 3.12.
fn naming_python() -> Option<String> {
    ["python3", "python3.13", "python3.12"].into_iter().find_map(|name| {
        let code = "import sys; sys.activate_stack_trampoline; print(sys.executable)";
        let output = Command::new(name).args(["-X", "perf", "-c", code]).output().ok()?;
        let path = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| path.trim_end().to_owned())
    })
}

#[test]
fn a_cache_that_keeps_its_objects() {
    let Some(python) = naming_python() else {
        eprintln!("SKIPPED: needs Python 3.12 or newer");
        return;
    };
    let script = source("clients.py");
    let stack = first_stack(&[], &[&python, "-X", "perf", script.to_str().unwrap()]);
    assert!(stack.contains("py::read_tree"), "{stack}");
}
