//! Cases with compilers: a C++ file that instantiates much of the standard library, and two Rust
//! crates.
//!
//! GCC keeps its syntax trees in a pool of its own; the rest comes from malloc. The Rust compiler
//! is Debian's: the one that rustup installs has jemalloc built in, which preloading does not
//! replace.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::case::{Case, Job};
use crate::kit::{Kit, run};

/// The crates to compile: the last versions without build scripts that Debian's compiler accepts.
const MANIFEST: &str = r#"
[package]
name = "crates-to-compile"
version = "0.0.0"
edition = "2021"
[dependencies]
memchr = "=2.6.4"
regex-syntax = "=0.6.29"
[workspace]
"#;

pub fn cases(kit: &Kit) -> Result<Vec<Case>> {
    kit.packages(&["g++", "rustc"])?;
    let crates = kit.once("crates", download)?.join("vendor");
    let gcc = Job::new("/usr/bin/g++")
        .args(["-std=c++20", "-O1", "-S", "-o", "/dev/null"])
        .arg(kit.source("scripts/tools/templates.cpp"));
    let rustc = |name: &str, emit: &str| {
        Job::new("/usr/bin/rustc")
            .args(["--crate-type=lib", "--edition=2021", "--cap-lints=allow", emit, "-o"])
            .arg(kit.work.join("compiled"))
            .arg(crates.join(name).join("src/lib.rs"))
    };
    let check = rustc("regex-syntax", "--emit=metadata").arg("--cfg=feature=\"unicode\"");
    let build = rustc("memchr", "--emit=link").args([
        "-O",
        "--cfg",
        "feature=\"std\"",
        "--cfg",
        "feature=\"alloc\"",
    ]);
    Ok(vec![
        Case::new("compile/gcc", "g++ -O1 on templates of containers, ranges and variants", gcc),
        Case::new("compile/rustc-check", "rustc checks regex-syntax (1 thread)", check).quick(),
        Case::new("compile/rustc-build", "rustc -O builds memchr (threads in LLVM)", build),
    ])
}

/// Downloads sources from crates.io into `directory/vendor`.
fn download(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory.join("src"))?;
    fs::write(directory.join("src/lib.rs"), "")?;
    fs::write(directory.join("Cargo.toml"), MANIFEST)?;
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    run(Command::new(cargo).args(["vendor", "--quiet"]).current_dir(directory))
}
