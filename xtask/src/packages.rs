//! Installs the Debian packages that the tests need and that are missing.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

/// Returns the first of `wanted` that is not installed.
pub fn missing<'a>(wanted: impl IntoIterator<Item = &'a String>) -> Option<&'a String> {
    wanted.into_iter().find(|package| !installed(package))
}

/// Installs those of `wanted` that are missing. A failure is reported here once; the tests that
/// need the packages are skipped, each with its reason.
pub fn install(wanted: &BTreeSet<String>) {
    let absent: Vec<&String> = wanted.iter().filter(|package| !installed(package)).collect();
    if absent.is_empty() {
        return;
    }
    let names = absent.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" ");
    println!("packages: installing {names}");
    let done = install_as_root(&absent);
    if !done {
        println!("packages: could not install them; as root run: apt-get install {names}");
    }
}

fn installed(package: &str) -> bool {
    Command::new("dpkg-query")
        .args(["--show", "--showformat=${db:Status-Status}", package])
        .stderr(Stdio::null())
        .output()
        .is_ok_and(|output| output.stdout == b"installed")
}

/// Runs `install.sh` as root: directly, or through sudo where it needs no password. Shows its
/// output only if it fails.
fn install_as_root(packages: &[&String]) -> bool {
    // SAFETY: the call always succeeds and touches no memory.
    let root = unsafe { libc::geteuid() } == 0;
    let sudo: &[&str] = if root { &[] } else { &["sudo", "--non-interactive"] };
    let script = ["/bin/sh", "-c", include_str!("install.sh"), "install.sh"];
    let mut words = sudo.iter().copied().chain(script);
    let mut command = Command::new(words.next().expect("the script's shell at least"));
    match command.args(words).args(packages).stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            eprint!("{}", String::from_utf8_lossy(&output.stderr));
            false
        }
        Err(error) => {
            let name = command.get_program().display();
            eprintln!("packages: cannot start {name}: {error}");
            false
        }
    }
}
