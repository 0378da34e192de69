//! `cargo xtask install`: installs everything that users of C and C++ need below one directory,
//! which may be moved.

use crate::shims::{self, SHIMS};
use crate::{cargo, object};
use anyhow::{Context as _, Result, bail, ensure};
use std::env;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Changes with each version that is not compatible with the one before. Below 1.0 no version
/// promises compatibility.
pub const SONAME: &str = "libebbmalloc.so.0";

const PKG_CONFIG: &str = include_str!("../../crates/capi/install/ebbmalloc.pc.in");
const SHIM_PKG_CONFIG: &str = include_str!("../../crates/shim/install/shim.pc.in");
const CMAKE: &str = include_str!("../../crates/capi/install/ebbmallocConfig.cmake.in");
const CMAKE_VERSION: &str =
    include_str!("../../crates/capi/install/ebbmallocConfigVersion.cmake.in");

#[derive(clap::Args)]
pub struct Args {
    /// Where to: bin, lib, include and share come below it
    #[arg(long, value_name = "DIR")]
    prefix: PathBuf,
    /// Where libraries go, below the prefix
    #[arg(long, value_name = "DIR", default_value = "lib")]
    libdir: PathBuf,
    /// For packagers: a directory to put in front of the prefix
    #[arg(long, value_name = "DIR")]
    destdir: Option<PathBuf>,
}

/// Builds and installs; prints where.
pub fn run(args: &Args) -> Result<bool> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace's root")?;
    let target = env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), |dir| root.join(dir));
    let tree = Tree::new(&args.prefix, &args.libdir, args.destdir.as_deref())?;
    // First make the directories: where that fails, nothing needs to be built.
    tree.make()?;
    cargo::build_release(root)?;
    tree.install(root, &target, &target.join("release/ebb"))?;
    println!("installed ebbmalloc {VERSION} below {}", tree.prefix.display());
    Ok(true)
}

/// The directories of an installation.
pub struct Tree {
    pub prefix: PathBuf,
    libdir: PathBuf,
}

impl Tree {
    pub fn new(prefix: &Path, libdir: &Path, destdir: Option<&Path>) -> Result<Tree> {
        let below = |path: &Path| {
            path.components().all(|part| matches!(part, Component::Normal(_)))
                && path.components().next().is_some()
        };
        ensure!(below(libdir), "--libdir {}: not a directory below the prefix", libdir.display());
        let prefix = match destdir {
            None => std::path::absolute(prefix).context("--prefix")?,
            Some(staging) => {
                let Ok(inner) = prefix.strip_prefix("/") else {
                    bail!("--prefix {}: not absolute, as --destdir needs it", prefix.display());
                };
                std::path::absolute(staging).context("--destdir")?.join(inner)
            }
        };
        Ok(Tree { prefix, libdir: libdir.to_path_buf() })
    }

    pub fn lib(&self) -> PathBuf {
        self.prefix.join(&self.libdir)
    }

    /// Makes the directories.
    fn make(&self) -> Result<()> {
        for folder in ["bin", "include", "share/doc/ebbmalloc"] {
            make_directory(&self.prefix.join(folder))?;
        }
        let lib = self.lib();
        for folder in ["pkgconfig", "cmake/ebbmalloc"] {
            make_directory(&lib.join(folder))?;
        }
        Ok(())
    }

    /// Copies all files: the command, and the libraries from the release directory. None of them
    /// names the prefix.
    pub fn install(&self, root: &Path, target: &Path, command: &Path) -> Result<()> {
        self.make()?;
        let lib = self.lib();
        let versioned = cargo::build_shared(root, &target.join("install"), SONAME)?;

        let release = target.join("release");
        copy(command, &self.prefix.join("bin/ebb"), 0o755)?;
        let name = format!("libebbmalloc.so.{VERSION}");
        copy(&versioned, &lib.join(&name), 0o755)?;
        link(&name, &lib.join(SONAME))?;
        link(SONAME, &lib.join("libebbmalloc.so"))?;
        let object = target.join("install/ebbmalloc.o");
        object::make(&release.join("libebbmalloc.a"), &versioned, &object)?;
        copy(&object, &lib.join("ebbmalloc.o"), 0o644)?;
        let archive = target.join("install/libebbmalloc.a");
        object::archive(&object, &archive)?;
        copy(&archive, &lib.join("libebbmalloc.a"), 0o644)?;

        for header in ["ebbmalloc.h", "ebbmalloc_new.hpp"] {
            let from = root.join("crates/capi/include").join(header);
            copy(&from, &self.prefix.join("include").join(header), 0o644)?;
        }
        self.install_shims(root, target, &versioned)?;
        self.fill(PKG_CONFIG, "pkgconfig/ebbmalloc.pc", 1)?;
        self.fill(CMAKE, "cmake/ebbmalloc/ebbmallocConfig.cmake", 2)?;
        self.fill(CMAKE_VERSION, "cmake/ebbmalloc/ebbmallocConfigVersion.cmake", 2)?;
        self.copy_documents(root)?;
        self.generate(&self.prefix.join("bin/ebb"))?;
        let watching = self.prefix.join("share/ebbmalloc");
        make_directory(&watching)?;
        for name in ["alerts.yml", "dashboard.json"] {
            copy(&root.join("share/ebbmalloc").join(name), &watching.join(name), 0o644)?;
        }
        Ok(())
    }

    /// Lets the command write its man pages and completions.
    fn generate(&self, ebb: &Path) -> Result<()> {
        let mut command = Command::new(ebb);
        let done = command.arg("generate").arg(self.prefix.join("share")).status();
        ensure!(done.context("cannot start ebb")?.success(), "ebb generate failed");
        Ok(())
    }

    /// Builds the shims, and copies them with their headers. `shared` is the shared library.
    fn install_shims(&self, root: &Path, target: &Path, shared: &Path) -> Result<()> {
        let work = target.join("install/shims");
        shims::build(root, &target.join("release"), shared, &work)?;
        for shim in SHIMS {
            let (name, lib) = (format!("ebbmalloc_{}", shim.name), self.lib());
            let (object, library) = (format!("{name}.o"), format!("lib{name}.so"));
            let versioned = format!("{library}.{VERSION}");
            copy(&work.join(&object), &lib.join(&object), 0o644)?;
            copy(&work.join(&library), &lib.join(&versioned), 0o755)?;
            link(&versioned, &lib.join(format!("{library}.0")))?;
            link(&format!("{library}.0"), &lib.join(&library))?;
            for header in shim.headers {
                let to = self.prefix.join("include").join(&name).join(header);
                make_directory(to.parent().context("a header's directory")?)?;
                copy(&shim.include(root).join(header), &to, 0o644)?;
            }
            let text = SHIM_PKG_CONFIG.replace("@SHIM@", shim.name);
            self.fill(&text, &format!("pkgconfig/{name}.pc"), 1)?;
        }
        Ok(())
    }

    /// Copies the documents for users, laid out as in the repository, so that links between them
    /// work.
    fn copy_documents(&self, root: &Path) -> Result<()> {
        let doc = self.prefix.join("share/doc/ebbmalloc");
        for folder in ["docs", "docs/benchmarks", "docs/decisions"] {
            let to = doc.join(folder);
            fs::create_dir_all(&to).with_context(|| format!("cannot create {}", to.display()))?;
            for entry in fs::read_dir(root.join(folder))? {
                let from = entry?.path();
                let is_document =
                    from.extension().is_some_and(|ending| ending == "md" || ending == "svg");
                if is_document && let Some(name) = from.file_name() {
                    copy(&from, &to.join(name), 0o644)?;
                }
            }
        }
        for file in ["README.md", "LICENSE"] {
            copy(&root.join(file), &doc.join(file), 0o644)?;
        }
        Ok(())
    }

    /// Writes a template into a file that lies `depth` directories below the libraries.
    fn fill(&self, template: &str, name: &str, depth: usize) -> Result<()> {
        let mut numbers = VERSION.split('.');
        let up = vec![".."; depth + self.libdir.components().count()].join("/");
        let text = template
            .replace("@UP@", &up)
            .replace("@LIBDIR@", &self.libdir.display().to_string())
            .replace("@VERSION@", VERSION)
            .replace("@MAJOR@", numbers.next().unwrap_or_default())
            .replace("@MINOR@", numbers.next().unwrap_or_default())
            .replace("@SONAME@", SONAME);
        let path = self.lib().join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

fn make_directory(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("cannot make directory {}", path.display()))
}

/// Copies to a new file and renames it, because running programs may have the old one mapped.
fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let fresh = to.with_added_extension("new");
    fs::copy(from, &fresh)
        .and_then(|_| fs::set_permissions(&fresh, fs::Permissions::from_mode(mode)))
        .and_then(|()| fs::rename(&fresh, to))
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}

fn link(target: &str, path: &Path) -> Result<()> {
    let fresh = path.with_added_extension("new");
    let _ = fs::remove_file(&fresh);
    symlink(target, &fresh)
        .and_then(|()| fs::rename(&fresh, path))
        .with_context(|| format!("cannot make link {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_checked_before_anything_is_built() {
        let tree = |prefix: &str, libdir: &str, destdir: Option<&str>| {
            Tree::new(prefix.as_ref(), libdir.as_ref(), destdir.map(Path::new))
        };
        let staged = tree("/usr", "lib/here", Some("/tmp/stage")).unwrap();
        assert_eq!(staged.lib(), Path::new("/tmp/stage/usr/lib/here"));
        for (prefix, libdir, destdir) in [
            ("usr", "lib", Some("/tmp")),
            ("/usr", "/lib", None),
            ("/usr", "../lib", None),
            ("/usr", "", None),
        ] {
            assert!(tree(prefix, libdir, destdir).is_err(), "{prefix} {libdir}");
        }
        let nowhere = tree("/proc/none", "lib", None).unwrap();
        let error = nowhere.make().unwrap_err();
        assert!(
            format!("{error:#}").starts_with("cannot make directory /proc/none/bin: "),
            "{error:#}"
        );
    }
}
