//! Finds a program as a shell does, and builds its environment with a preloaded library.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use crate::stop::{NOT_EXECUTABLE, NOT_FOUND, Stop};

/// The file that running `name` would execute. Errors carry the exit code that a shell would
/// return.
pub fn find(name: &OsStr) -> anyhow::Result<PathBuf> {
    let shown = name.display();
    if name.as_bytes().contains(&b'/') {
        return match check(Path::new(name)) {
            Ok(()) => Ok(name.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(Stop::with(NOT_FOUND, format!("{shown}: no such file")))
            }
            Err(error) => {
                Err(Stop::with(NOT_EXECUTABLE, format!("cannot execute {shown} ({error})")))
            }
        };
    }
    let mut denied = None;
    for folder in env::split_paths(&env::var_os("PATH").unwrap_or_default()) {
        let candidate = folder.join(name);
        match check(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                denied = Some(candidate)
            }
            Err(_) => {}
        }
    }
    Err(match denied {
        Some(path) => Stop::with(
            NOT_EXECUTABLE,
            format!("{}: not executable; `chmod +x` makes it executable", path.display()),
        ),
        None => Stop::with(NOT_FOUND, format!("{shown}: not found in any directory of PATH")),
    })
}

/// Whether a file can be executed, as far as its kind and permissions tell.
fn check(path: &Path) -> io::Result<()> {
    if path.metadata()?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    Ok(rustix::fs::access(path, Access::EXEC_OK)?)
}

/// The error for a program that the kernel refused to start.
pub fn refused(path: &Path, error: io::Error) -> anyhow::Error {
    let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
    Stop::with(code, format!("cannot start {} ({error})", path.display()))
}

/// The value of LD_PRELOAD that puts `library` before the libraries already there.
///
/// Fails if the path has a space or a colon: the loader splits the list there.
pub fn preload(library: &Path, already: Option<&OsStr>) -> anyhow::Result<OsString> {
    let path = library.as_os_str().as_bytes();
    if path.iter().any(|byte| b" :".contains(byte)) {
        return Err(Stop::usage(format!(
            "{}: LD_PRELOAD cannot hold a path with a space or a colon. Move the library, or make \
             a link to it",
            library.display()
        )));
    }
    let mut value = path.to_vec();
    if let Some(already) = already.filter(|value| !value.is_empty()) {
        value.push(b':');
        value.extend(already.as_bytes());
    }
    Ok(OsString::from_vec(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stop;

    #[test]
    fn finds_programs_and_explains_failures() {
        assert!(find(OsStr::new("sh")).unwrap().is_absolute());
        assert_eq!(find(OsStr::new("/bin/sh")).unwrap(), Path::new("/bin/sh"));
        for (name, code) in [
            ("no-such-program-anywhere", 127),
            ("/no/such/file", 127),
            ("/etc/passwd", 126),
            ("/etc", 126),
        ] {
            let error = find(OsStr::new(name)).unwrap_err();
            assert_eq!(stop::code(&error), code, "{error}");
            assert!(error.to_string().contains(name), "{error}");
        }
    }

    #[test]
    fn preload_comes_first_and_keeps_the_rest() {
        let value = |already| preload(Path::new("/a.so"), already).unwrap();
        assert_eq!(value(None), "/a.so");
        assert_eq!(value(Some(OsStr::new(""))), "/a.so");
        assert_eq!(value(Some(OsStr::new("/b.so"))), "/a.so:/b.so");
        assert!(preload(Path::new("/a b.so"), None).is_err());
        assert!(preload(Path::new("/a:b.so"), None).is_err());
    }
}
