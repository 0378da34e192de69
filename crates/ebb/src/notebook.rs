//! Collects the remarks on a comparison as the runs reveal them.

use std::ffi::OsStr;
use std::path::PathBuf;

use crate::contender::Contender;
use crate::inspect::Program;
use crate::measure::Run;
use crate::notes::{self, Note};
use crate::output;

/// Collects remarks, each once.
pub struct Notebook<'a> {
    name: &'a OsStr,
    notes: Vec<Note>,
    inspected: Vec<PathBuf>,
}

impl<'a> Notebook<'a> {
    pub fn new(name: &'a OsStr) -> Self {
        Self { name, notes: Vec::new(), inspected: Vec::new() }
    }

    pub fn extend(&mut self, notes: impl IntoIterator<Item = Note>) {
        for note in notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }

    pub fn inspect(&mut self, program: &Program, contenders: &[Contender]) {
        self.inspected
            .extend([program.path.clone(), program.path.canonicalize().unwrap_or_default()]);
        let libraries: Vec<_> =
            contenders.iter().filter_map(|contender| contender.library.as_ref()).collect();
        self.extend(notes::program(program, self.name, &libraries));
    }

    /// Prints at once the notes that make the comparison futile: the user may not want to wait for
    /// it.
    pub fn warn(&self) {
        for note in self.notes.iter().filter(|note| note.futile) {
            output::remark(&note.text);
        }
    }

    /// Adds remarks that a run reveals: a script may have started another program.
    pub fn observe(&mut self, run: &Run, contenders: &[Contender], index: usize) {
        let contender = &contenders[index];
        if let Some(exe) = run.exe.as_ref().filter(|exe| !self.inspected.contains(exe)) {
            self.inspect(&Program::of(exe), contenders);
        }
        let known = self.notes.iter().any(|note| note.futile) || contender.loaded == Some(false);
        if contender.library.is_some() && run.loaded == Some(false) && !known {
            let exe =
                run.exe.as_ref().map_or("the program".into(), |exe| exe.display().to_string());
            // The loader prints on the program's standard error why it failed.
            let stderr = String::from_utf8_lossy(&run.stderr);
            let reason =
                stderr.lines().find(|line| line.contains("LD_PRELOAD cannot be preloaded"));
            let reason = reason.map_or(String::new(), |line| format!(" The loader said: {line}"));
            self.extend([Note::remark(format!(
                "{} was not loaded into {exe}: its memory map did not contain it at the end. Its \
                 runs show the system's allocator.{reason}",
                contender.name
            ))]);
        }
        if let Some(error) = &run.untraced {
            self.extend([Note::remark(format!(
                "Memory at end is the last value seen, sampled every 10 ms: the program cannot be \
                 traced ({error})."
            ))]);
        } else if run.sample.end_bytes.is_none() {
            self.extend([Note::remark(
                "Memory at end is unknown: the program's last thread ended unseen, or executed \
                 another program.",
            )]);
        }
    }

    pub fn finish(mut self, perf: Option<String>) -> Vec<String> {
        self.extend(perf.map(Note::remark));
        self.notes.into_iter().map(|note| note.text).collect()
    }
}
