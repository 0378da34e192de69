//! Finds Debian's packages and installs the missing ones.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::command_output;

/// Installs those of the packages that are missing.
pub fn install(names: &[&str]) -> Result<()> {
    let missing: Vec<_> = names.iter().filter(|name| !installed(name)).copied().collect();
    if missing.is_empty() {
        return Ok(());
    }
    eprintln!("installing Debian's {}", missing.join(", "));
    let mut arguments =
        vec!["install", "-q", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"];
    arguments.extend(&missing);
    // A new machine, or one not updated for long, lacks recent package lists.
    apt_get(&arguments)
        .or_else(|_| apt_get(&["update", "-q"]).and_then(|()| apt_get(&arguments)))
        .with_context(|| format!("as root: apt-get install {}", missing.join(" ")))
}

fn installed(name: &str) -> bool {
    let status = ["--show", "--showformat=${db:Status-Status}", name];
    command_output("dpkg-query", &status).is_ok_and(|text| text == "installed")
}

/// Runs apt-get as root: directly, or through sudo where it needs no password.
fn apt_get(arguments: &[&str]) -> Result<()> {
    // SAFETY: the call always succeeds and touches no memory.
    let root = unsafe { libc::geteuid() } == 0;
    let mut command = Command::new(if root { "apt-get" } else { "sudo" });
    if !root {
        command.args(["--non-interactive", "DEBIAN_FRONTEND=noninteractive", "apt-get"]);
    }
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    let output = command.output().context("starting apt-get")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

/// Returns the path of the file with this name in a package.
pub fn file(package: &str, name: &str) -> Result<PathBuf> {
    let hint = || format!("Debian's {package} is not installed: `micro setup`, as root, does that");
    let listing = command_output("dpkg", &["-L", package]).with_context(hint)?;
    let line = listing.lines().find(|line| line.ends_with(&format!("/{name}")));
    Ok(line.with_context(|| format!("{package} has no {name}"))?.into())
}

/// Returns for example "Debian's libjemalloc2 5.3.0-1".
pub fn version(package: &str) -> Result<String> {
    let version = command_output("dpkg-query", &["-W", "-f", "${Version}", package])?;
    Ok(format!("Debian's {package} {version}"))
}
