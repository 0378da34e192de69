//! Makes the shims, by which programs call ebbmalloc by the names of other allocators' functions:
//! of each an object with all of ebbmalloc, and a shared library of that object.

use crate::{cargo, object};
use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// How names begin that only shims use of the engine: its functions for them, and its
/// `operator new`, also the aligned one.
const BESIDE: [&str; 2] = ["ebb_beside_", "ebb_own_Znwm"];
/// What lets exceptions pass. The second is the first's address, which linkers keep once: it must
/// be global until the objects are joined.
const PERSONALITY: [&str; 2] = ["rust_eh_personality", "DW.ref.rust_eh_personality"];

/// A shim: the crate `crates/shim-NAME`.
pub struct Shim {
    pub name: &'static str,
    /// How the names of its functions begin. Without the first, they are its functions too, if it
    /// defines them.
    prefixes: &'static [&'static str],
    /// The headers, below the crate's `include`.
    pub headers: &'static [&'static str],
}

pub const SHIMS: [Shim; 2] = [
    Shim { name: "jemalloc", prefixes: &["je_", "_rjem_"], headers: &["jemalloc/jemalloc.h"] },
    Shim {
        name: "mimalloc",
        prefixes: &["mi_"],
        headers: &["mimalloc.h", "mimalloc-new-delete.h", "mimalloc-override.h"],
    },
];

impl Shim {
    /// The folder of headers in the crate.
    pub fn include(&self, root: &Path) -> PathBuf {
        root.join(format!("crates/shim-{}/include", self.name))
    }

    /// The functions that an archive has of this shim.
    fn functions(&self, archive: &Path) -> Result<BTreeSet<String>> {
        let mut names = object::defined(archive)?;
        let all = names.clone();
        names.retain(|name| {
            self.prefixes.iter().any(|prefix| name.starts_with(prefix))
                || all.contains(&format!("{}{name}", self.prefixes[0]))
        });
        ensure!(names.len() > 10, "{} defines {} functions", archive.display(), names.len());
        Ok(names)
    }
}

/// Builds all shims into `work`, as `ebbmalloc_NAME.o` and `libebbmalloc_NAME.so`. `release` has
/// ebbmalloc's archive, `shared` exports what it exports.
pub fn build(root: &Path, release: &Path, shared: &Path, work: &Path) -> Result<()> {
    let packages = SHIMS.map(|shim| format!("ebbmalloc-shim-{}", shim.name));
    cargo::build_packages(root, &packages)?;
    fs::create_dir_all(work).with_context(|| format!("cannot create {}", work.display()))?;

    let exported = object::exported_by_both(shared)?;
    let archive = release.join("libebbmalloc.a");
    let mut beside = object::defined(&archive)?;
    beside.retain(|name| BESIDE.iter().any(|start| name.starts_with(start)));
    let personality = PERSONALITY.map(str::to_string);
    beside.extend(personality.clone());
    let engine = work.join("engine.o");
    object::make_with(&archive, &exported.union(&beside).cloned().collect(), &engine)?;
    for shim in SHIMS {
        let archive = release.join(format!("libshim_{}.a", shim.name));
        let functions = shim.functions(&archive)?;
        let own = work.join(format!("{}.o", shim.name));
        let names = functions.iter().cloned().chain(personality.clone()).collect();
        object::make_with(&archive, &names, &own)?;
        let whole = work.join(format!("ebbmalloc_{}.o", shim.name));
        object::join(&[&own, &engine], &functions.union(&exported).cloned().collect(), &whole)?;
        let library = format!("libebbmalloc_{}.so", shim.name);
        object::share(&whole, &format!("{library}.0"), &work.join(&library))?;
    }
    Ok(())
}
