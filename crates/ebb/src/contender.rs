//! The state of one allocator during a comparison.

use std::env;
use std::ffi::OsString;
use std::path::Path;

use anyhow::Context;

use crate::library::Library;
use crate::measure::{Run, Sample};
use crate::program;
use crate::spawn::Command;

/// An allocator with its runs so far.
pub struct Contender {
    pub name: String,
    pub library: Option<Library>,
    pub command: Command,
    pub samples: Vec<Sample>,
    /// Whether its library was in the program in every run so far; `None` if that could not be
    /// observed.
    pub loaded: Option<bool>,
    /// Runs without failure, warm-ups included.
    pub succeeded: u32,
}

impl Contender {
    pub fn new(
        name: &str,
        library: Option<Library>,
        path: &Path,
        arguments: &[OsString],
    ) -> anyhow::Result<Self> {
        let before = env::var_os("LD_PRELOAD");
        let set = match &library {
            Some(library) => {
                vec![("LD_PRELOAD", program::preload(&library.path, before.as_deref())?)]
            }
            None => Vec::new(),
        };
        let command = Command::new(path, arguments, &set)
            .context("an argument or environment variable contains a zero byte")?;
        Ok(Self {
            name: name.into(),
            library,
            command,
            samples: Vec::new(),
            loaded: None,
            succeeded: 0,
        })
    }

    /// Records a run.
    pub fn record(&mut self, run: Run, warming: bool) {
        self.succeeded += u32::from(run.status.success());
        if self.library.is_some() {
            self.loaded = match (self.loaded, run.loaded) {
                (Some(before), Some(now)) => Some(before && now),
                (before, now) => before.or(now),
            };
        }
        if !warming {
            self.samples.push(run.sample);
        }
    }
}
