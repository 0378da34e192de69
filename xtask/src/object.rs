//! Makes `ebbmalloc.o`, one relocatable object with all of ebbmalloc, from the static library.
//!
//! On a link line it is included whether or not the program names it, also with `-static`. Only the
//! shared library's exports stay global, so that no name of Rust's own library can clash.

use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Writes `object`: the parts of the archive that the exports of `shared` need.
pub fn make(archive: &Path, shared: &Path, object: &Path) -> Result<()> {
    let names = exported_by_both(shared)?;
    ensure!(names.contains("malloc"), "{} exports no malloc", shared.display());
    make_with(archive, &names, object)
}

/// Writes `object`: the parts of the archive that these names need. They alone stay global.
pub fn make_with(archive: &Path, names: &BTreeSet<String>, object: &Path) -> Result<()> {
    let whole = object.with_extension("whole.o");
    let mut ld = Command::new("ld");
    ld.args(["-r", "--gc-sections", "--strip-debug", "-o"]).arg(&whole);
    // The exports are the roots. The code that runs at start is kept too, although no code names
    // it.
    for name in names {
        ld.arg(format!("--undefined={name}"));
    }
    output(ld.arg(archive))?;
    keep_global(&whole, names, object)
}

/// Writes `joined`: these objects as one, in which only these names stay global.
pub fn join(objects: &[&Path], names: &BTreeSet<String>, joined: &Path) -> Result<()> {
    let whole = joined.with_extension("whole.o");
    output(Command::new("ld").args(["-r", "-o"]).arg(&whole).args(objects))?;
    keep_global(&whole, names, joined)
}

/// Writes `shared`: a shared library that exports what is global in the object.
pub fn share(object: &Path, soname: &str, shared: &Path) -> Result<()> {
    let mut cc = Command::new("cc");
    // As crates/capi/build.rs says, it is never unloaded, and its constructors run first.
    cc.args(["-shared", "-Wl,-z,nodelete,-z,initfirst,-z,relro,-z,now,--gc-sections"]);
    cc.arg(format!("-Wl,-soname,{soname}")).arg("-o").arg(shared).arg(object);
    output(&mut cc)?;
    Ok(())
}

fn keep_global(whole: &Path, names: &BTreeSet<String>, object: &Path) -> Result<()> {
    let list = object.with_extension("names");
    fs::write(&list, names.iter().map(|name| format!("{name}\n")).collect::<String>())
        .with_context(|| format!("cannot write {}", list.display()))?;
    let mut objcopy = Command::new("objcopy");
    objcopy.args(NO_BITCODE).arg("--keep-global-symbols").arg(&list).arg(whole).arg(object);
    output(&mut objcopy)?;
    Ok(())
}

/// Makes `objcopy` remove what Rust's own library contains for link-time optimization by the same
/// compiler. A linker's plugin from another LLVM takes these sections for code of its own, and
/// fails to read them.
const NO_BITCODE: [&str; 2] = ["--remove-section=.llvmbc", "--remove-section=.llvmcmd"];

/// Writes `archive` with this object only.
pub fn archive(object: &Path, archive: &Path) -> Result<()> {
    let _ = fs::remove_file(archive);
    // `D` makes the bytes the same each time.
    output(Command::new("ar").arg("rcsD").arg(archive).arg(object))?;
    Ok(())
}

/// What only the shared library defines: `crates/capi/src/deep_binding.rs`.
const ONLY_SHARED: [&str; 2] = ["dlopen", "dlmopen"];

/// Returns the functions that a shared library exports, as far as the static one has them.
pub fn exported_by_both(shared: &Path) -> Result<BTreeSet<String>> {
    let mut names = exported(shared)?;
    names.retain(|name| !ONLY_SHARED.contains(&name.as_str()));
    Ok(names)
}

/// Returns the functions that a shared library exports.
pub fn exported(shared: &Path) -> Result<BTreeSet<String>> {
    let table = output(Command::new("nm").args(["-D", "--defined-only", "-P"]).arg(shared))?;
    Ok(functions(&table))
}

/// Returns the functions that an archive defines.
pub fn defined(archive: &Path) -> Result<BTreeSet<String>> {
    let table = output(Command::new("nm").args(["-g", "--defined-only", "-P"]).arg(archive))?;
    Ok(functions(&table))
}

/// Returns the functions and variables that a shared library imports.
pub fn imported(shared: &Path) -> Result<BTreeSet<String>> {
    let table = output(Command::new("nm").args(["-D", "--undefined-only", "-P"]).arg(shared))?;
    let name = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, kind) = (words.next()?, words.next()?);
        (kind == "U").then(|| name.split('@').next().unwrap_or(name).into())
    };
    Ok(table.lines().filter_map(name).collect())
}

/// Returns the names of functions in the output of `nm -P`: name, type, value, size.
fn functions(table: &str) -> BTreeSet<String> {
    table
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (name, kind) = (words.next()?, words.next()?);
            (matches!(kind, "T" | "W" | "i")).then(|| name.split('@').next().unwrap_or(name).into())
        })
        .collect()
}

fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().display().to_string();
    let output = command
        .output()
        .with_context(|| format!("cannot start {name}, of Debian's package binutils"))?;
    ensure!(
        output.status.success(),
        "{name}: {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_told_from_data() {
        let table = "malloc T 1000 20\n_Znwm W 1020 5\nerrno B 0 4\nfree@@V1 T 2000 3\n";
        let names: Vec<String> = functions(table).into_iter().collect();
        assert_eq!(names, ["_Znwm", "free", "malloc"]);
    }
}
