//! What every step of `cargo xtask test` is given.

use crate::library::Library;
use crate::workspace;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::PathBuf;

/// What every step is given.
pub struct Context {
    pub root: PathBuf,
    /// Cargo's target directory.
    pub target: PathBuf,
    /// Where steps keep what they build and print; left behind for a look.
    pub work: PathBuf,
    pub library: Library,
    /// Part of the names of the programs to run.
    pub filter: String,
    /// Whether to run also what takes minutes.
    pub long: bool,
    /// What runs the contract programs: a command that takes theirs. Empty for nothing.
    pub runner: &'static [&'static str],
    /// Whether that is qemu.
    pub emulated: bool,
}

impl Context {
    /// For the library that is to be tested, and what has `filter` in its name.
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

    /// The same for another library, whose steps keep their things apart.
    pub fn with(&self, library: Library, name: &str) -> Result<Context> {
        let work = self.work.join(name);
        fs::create_dir_all(&work)?;
        let (root, target, filter) = (self.root.clone(), self.target.clone(), self.filter.clone());
        Ok(Context { root, target, work, library, filter, ..*self })
    }
}
