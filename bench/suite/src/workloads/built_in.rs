//! Builds the programs in `bench/built-in`, which have their allocator built in.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use anyhow::{Context, Result, anyhow};

use crate::case::{Allocator, Case, Job};
use crate::kit::Kit;

/// Allocators that are Rust crates: features of the package.
const CRATES: [&str; 7] =
    ["ebbmalloc", "mimalloc2", "mimalloc3", "jemalloc", "snmalloc", "rpmalloc", "tcmalloc"];

/// The directories of each build's programs.
#[derive(Clone)]
pub struct Builds {
    system: PathBuf,
    crates: Rc<BTreeMap<&'static str, Result<PathBuf>>>,
}

impl Builds {
    /// Builds the programs on each allocator of the run that is a crate, and on the system's.
    pub fn make(kit: &Kit) -> Result<Self> {
        let wanted = CRATES.into_iter().filter(|name| kit.allocators.contains(name));
        let crates = wanted.map(|name| (name, kit.build("built-in", name))).collect();
        Ok(Self { system: kit.build("built-in", "")?, crates: Rc::new(crates) })
    }

    /// Makes a case of one of the programs. Allocators that are no crate are preloaded.
    pub fn case(
        &self,
        name: impl Into<String>,
        about: impl Into<String>,
        program: &'static str,
        with: impl Fn(Job) -> Job + 'static,
    ) -> Case {
        let builds = self.clone();
        Case::chosen(name, about, move |allocator| Ok(with(builds.job(allocator, program)?)))
            .ours_built_in()
    }

    /// Returns a program on the system's allocator, for preloading.
    pub fn preloaded(&self, program: &str) -> Job {
        Job::new(self.system.join(program))
    }

    fn job(&self, allocator: &Allocator, program: &str) -> Result<Job> {
        match self.crates.get(&*allocator.name) {
            Some(Ok(directory)) => Ok(Job::new(directory.join(program)).built_in()),
            Some(Err(error)) => Err(anyhow!("{error:#}")).context("building it in"),
            None => Ok(self.preloaded(program)),
        }
    }
}
