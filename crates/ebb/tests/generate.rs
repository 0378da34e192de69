//! Tests what `ebb generate` writes: man pages and completions.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::ebb;

const COMMANDS: [&str; 5] = ["run", "compare", "set", "why", "profile"];

fn generated() -> tempfile::TempDir {
    let share = tempfile::tempdir().unwrap();
    ebb().arg("generate").arg(share.path()).assert().success().stdout("").stderr("");
    share
}

/// What a command prints, on both streams; None if it is not installed.
fn said(command: &mut Command) -> Option<String> {
    let name = command.get_program().to_owned();
    let Ok(output) = command.output() else {
        eprintln!("SKIPPED: {} is not installed", name.display());
        return None;
    };
    assert!(output.status.success(), "{command:?}: {output:?}");
    Some(String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

#[test]
fn each_command_has_a_man_page() {
    let share = generated();
    let folder = share.path().join("man/man1");
    let names = COMMANDS.map(|name| format!("ebb-{name}.1"));
    let mut found: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    let mut expected = names.to_vec();
    expected.push("ebb.1".into());
    expected.sort();
    assert_eq!(found, expected);
    for name in expected {
        let path = folder.join(&name);
        let text = fs::read_to_string(&path).unwrap();
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS"] {
            assert_eq!(
                text.matches(&format!(".SH {section}\n")).count()
                    + text.matches(&format!(".SH \"{section}\"\n")).count(),
                1,
                "{name}: {section}"
            );
        }
        let warnings = said(
            Command::new("man")
                .args(["--warnings", "--local-file"])
                .arg(&path)
                .env("LC_ALL", "C.UTF-8")
                .stdout(std::process::Stdio::null()),
        );
        assert!(warnings.is_none_or(|text| text.is_empty()), "{name}");
    }
}

#[test]
fn shells_load_the_completions() {
    let share = generated();
    let ask = |words: &str| {
        let script = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _ebb ebb \"${{COMP_WORDS[-1]}}\" \"${{COMP_WORDS[-2]}}\"; echo \"${{COMPREPLY[@]}}\"",
            share.path().join("bash-completion/completions/ebb").display()
        );
        said(Command::new("bash").args(["--norc", "-c", &script]))
    };
    let Some(commands) = ask("ebb ''") else { return };
    for name in COMMANDS {
        assert!(commands.split_whitespace().any(|word| word == name), "{commands}");
    }
    assert_eq!(ask("ebb com").unwrap(), "compare\n");
    assert_eq!(ask("ebb run --har").unwrap(), "--harden\n");
    assert_eq!(ask("ebb run --mode thr").unwrap(), "thread\n");
    let parse = |shell: &str, option: &str, path: &Path| {
        let said = said(Command::new(shell).arg(option).arg(path));
        assert!(said.is_none_or(|text| text.is_empty()), "{shell}");
    };
    parse("zsh", "-n", &share.path().join("zsh/site-functions/_ebb"));
    parse("fish", "--no-execute", &share.path().join("fish/vendor_completions.d/ebb.fish"));
}
