//! Writes the table of one run of the step: programs, versions, what was run, and the modes it
//! passed in.

use super::script::Script;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::Path;

/// The result of a script in a mode.
pub struct Outcome {
    pub mode: &'static str,
    pub passed: bool,
}

#[derive(Default)]
pub struct Table(Vec<String>);

impl Table {
    pub fn add(&mut self, script: &Script, version: String, outcomes: Vec<Outcome>) {
        let modes = |passed| {
            let names: Vec<_> =
                outcomes.iter().filter(|one| one.passed == passed).map(|one| one.mode).collect();
            names.join(", ")
        };
        let result = match modes(false) {
            failed if failed.is_empty() => "as without".to_string(),
            failed => format!("**fails: {failed}**"),
        };
        let note = script.note.as_ref().map_or(String::new(), |note| format!("; {note}"));
        let Script { name, about, .. } = script;
        self.0.push(format!("| {name} | {version} | {about} | {} | {result}{note} |", modes(true)));
    }

    pub fn write(mut self, path: &Path) -> Result<()> {
        const HEAD: &str = "| script | version | what is run | passed in | output and exit code |\n\
                            |---|---|---|---|---|\n";
        self.0.sort();
        let lines: String = self.0.iter().map(|row| format!("{row}\n")).collect();
        fs::write(path, format!("{HEAD}{lines}"))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}
