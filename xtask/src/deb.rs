//! `cargo xtask deb`: makes Debian packages of what `cargo xtask install` installs. The test
//! installs, uses and removes them on a fresh Debian.

use crate::context::Context;
use crate::install::{SONAME, Tree, VERSION};
use crate::object;
use crate::process::{self, last_lines};
use crate::tally::Tally;
use crate::{cargo, packages, workspace};
use anyhow::{Result, ensure};
use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Versions of the packages themselves: changes if only the packaging does.
const REVISION: u32 = 1;
const MAINTAINER: &str = "ebbmalloc <ebbmalloc@users.noreply.github.com>";
const HOMEPAGE: &str = env!("CARGO_PKG_REPOSITORY");
const LIMIT: Duration = Duration::from_secs(900);

/// The version that each function of the library came with.
const SYMBOLS: &str = include_str!("../../crates/capi/install/symbols");

struct Package {
    name: &'static str,
    section: &'static str,
    /// Packages of ours that it needs, in its own version.
    needs: &'static [&'static str],
    about: &'static str,
    /// What it takes from the installed tree, of what those before it left.
    files: &'static [&'static str],
}

/// `LIB` is the folder of libraries.
const PACKAGES: [Package; 3] = [
    Package {
        name: "libebbmalloc0",
        section: "libs",
        needs: &[],
        about: "memory allocator that is fast and gives memory back\n \
                ebbmalloc replaces malloc in any program, by LD_PRELOAD or by linking. It is\n \
                fast with little memory, and returns free memory to the kernel while a\n \
                program is idle.\n \
                .\n This package has the shared library.",
        files: &["LIB/libebbmalloc*.so.*"],
    },
    Package {
        name: "libebbmalloc-dev",
        section: "libdevel",
        needs: &["libebbmalloc0"],
        about: "memory allocator that is fast and gives memory back (development)\n \
                ebbmalloc replaces malloc in any program, by LD_PRELOAD or by linking.\n \
                .\n This package has headers, the static library, all of it as one object, and\n \
                what pkg-config and CMake need.",
        files: &["include", "LIB"],
    },
    Package {
        name: "ebbmalloc",
        section: "utils",
        needs: &["libebbmalloc0"],
        about: "run programs on ebbmalloc, and see who holds their memory\n \
                The command ebb runs programs on ebbmalloc, compares allocators on them, and\n \
                shows where the memory of a running process is, and which code holds it.\n \
                .\n Alert rules for Prometheus, a dashboard for Grafana and documents are\n \
                included.",
        files: &["bin", "share"],
    },
];

pub fn run() -> Result<bool> {
    let root = workspace::root()?;
    for path in make(&root, &workspace::target(&root))? {
        println!("{}", path.display());
    }
    Ok(true)
}

/// Makes the packages, below `target/deb`.
fn make(root: &Path, target: &Path) -> Result<Vec<PathBuf>> {
    let work = target.join("deb");
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    fs::create_dir_all(work.join("debian"))?;
    let architecture = shell(&work, "dpkg --print-architecture", &[])?;
    let triplet = shell(&work, "gcc -print-multiarch", &[])?;
    let epoch = match env::var("SOURCE_DATE_EPOCH") {
        Ok(epoch) => epoch,
        Err(_) => shell(root, "git log -1 --format=%ct", &[])?,
    };
    let lib = format!("lib/{triplet}");
    let tree = Tree::new("/usr".as_ref(), lib.as_ref(), Some(&work.join("stage")))?;
    cargo::build_release(root)?;
    tree.install(root, target, &target.join("release/ebb"))?;
    let exported = object::exported(&tree.lib().join(SONAME))?;
    shell(&tree.prefix, include_str!("deb/stage.sh"), &[("LIB", &lib)])?;

    let version = format!("{VERSION}-{REVISION}");
    fs::write(
        work.join("debian/control"),
        "Source: ebbmalloc\n\nPackage: ebbmalloc\nArchitecture: any\n",
    )?;
    let mut made = Vec::new();
    for package in &PACKAGES {
        let files = package.files.join(" ").replace("LIB", &lib);
        let needs = package.needs.iter().map(|name| format!("{name} (= {version})"));
        let needs = needs.collect::<Vec<_>>().join(", ");
        let control = format!(
            "Package: {}\nSource: ebbmalloc\nVersion: {version}\nArchitecture: {architecture}\n\
             Maintainer: {MAINTAINER}\nSection: {}\nPriority: optional\nHomepage: {HOMEPAGE}\n",
            package.name, package.section
        );
        let multi = if package.section.starts_with("lib") { "Multi-Arch: same\n" } else { "" };
        let control = format!("{control}{multi}Description: {}\n", package.about);
        let settings = [
            ("NAME", package.name),
            ("FILES", &files),
            ("VERSION", &version),
            ("NEEDS", &needs),
            ("CONTROL", &control),
            ("MAINTAINER", MAINTAINER),
            ("HOMEPAGE", HOMEPAGE),
            ("SYMBOLS", &symbols(&exported)),
            ("ROOT", &root.to_string_lossy()),
            ("SOURCE_DATE_EPOCH", &epoch),
        ];
        shell(&work, include_str!("deb/package.sh"), &settings)?;
        made.push(work.join(format!("{}_{version}_{architecture}.deb", package.name)));
    }
    Ok(made)
}

/// What Debian's tools need to know the oldest library that a program runs with. Functions of the C
/// library, and the operators of C++, were there from the start.
fn symbols(exported: &BTreeSet<String>) -> String {
    let came =
        |name: &str| SYMBOLS.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let line = |name: &String| format!(" {name}@Base {}\n", came(name).unwrap_or("0.1.0"));
    let lines: String = exported.iter().map(line).collect();
    format!("{SONAME} libebbmalloc0 #MINVER#\n* Build-Depends-Package: libebbmalloc-dev\n{lines}")
}

/// Runs a script with these variables, and returns what it prints.
fn shell(folder: &Path, script: &str, variables: &[(&str, &str)]) -> Result<String> {
    let mut command = Command::new("/bin/sh");
    command.args(["-euc", script]).current_dir(folder).envs(variables.iter().copied());
    process::said(command.env("LC_ALL", "C.UTF-8"))
}

/// What making and testing need.
pub fn needed() -> [String; 4] {
    ["dpkg-dev", "debootstrap", "lintian", "gcc"].map(str::to_string)
}

/// Installs, uses and removes the packages on a fresh Debian.
pub fn test(context: &Context, dir: &Path) -> Result<Tally> {
    let mut tally = Tally::default();
    let name = "faces/c debian packages";
    if !context.long {
        tally.skip(name, "takes minutes; with --long");
        return Ok(tally);
    }
    if let Some(package) = packages::missing(&needed()) {
        tally.skip(name, format!("package {package} is not installed"));
        return Ok(tally);
    }
    tally.count(name, try_on_debian(context, dir));
    Ok(tally)
}

fn try_on_debian(context: &Context, dir: &Path) -> Result<()> {
    make(&context.root, &context.target)?;
    let mut command = Command::new("/bin/sh");
    command
        .args(["-eu"])
        .arg(context.root.join("tests/deb/debian.sh"))
        .current_dir(dir)
        .env("DEBS", context.target.join("deb"))
        .env("EXAMPLES", context.root.join("examples/c"));
    let run = process::run(&mut command, LIMIT, &dir.join("debian"), None)?;
    ensure!(run.success(), "{}\n{}", run.describe(), last_lines(&run.stdout, 12));
    Ok(())
}
