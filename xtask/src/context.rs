//! Defines the arguments common to all steps of `cargo xtask test`.

use crate::library::Library;
use crate::workspace;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::PathBuf;

/// Arguments of a step.
pub struct Context {
    pub root: PathBuf,
    /// Cargo's target directory.
    pub target: PathBuf,
    /// Steps keep here what they build and print, also after the test.
    pub work: PathBuf,
    pub library: Library,
    /// Part of the names of the programs to run.
    pub filter: String,
    /// Whether to run also tests that take minutes.
    pub long: bool,
    /// A command in front of each contract program's; empty for none.
    pub runner: &'static [&'static str],
    /// Whether `runner` is qemu.
    pub emulated: bool,
}

impl Context {
    /// Makes a context for the library under test and for tests with `filter` in their names.
    pub fn find(filter: &str) -> Result<Context> {
        let root = workspace::root()?;
        let target = workspace::target(&root);
        let work = target.join("test");
        fs::create_dir_all(&work).with_context(|| format!("cannot create {}", work.display()))?;
        let library = Library::find(&target.join("release"))?;
        let filter = filter.to_string();
        Ok(Context {
            root,
            target,
            work,
            library,
            filter,
            long: false,
            runner: &[],
            emulated: false,
        })
    }

    /// Returns the same context for another library, whose steps use a directory of their own.
    pub fn with(&self, library: Library, name: &str) -> Result<Context> {
        let work = self.work.join(name);
        fs::create_dir_all(&work)?;
        let (root, target, filter) = (self.root.clone(), self.target.clone(), self.filter.clone());
        Ok(Context { root, target, work, library, filter, ..*self })
    }
}
