//! Finds the file with the symbols of a program or library: the file itself, or a separate one.

use std::env;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::Object;
use object::read::ReadCache;

use super::maps::{Head, hexadecimal};

/// Where Debian, Fedora and others install debug files.
const SYSTEM: &str = "/usr/lib/debug";

/// The candidates for a file of this path and build ID, in the order of preference.
pub fn candidates(folders: &[PathBuf], path: &Path, build_id: Option<&[u8]>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let name = path.file_name().unwrap_or_default();
    let with_debug = |folder: &Path| {
        let mut name = name.to_owned();
        name.push(".debug");
        folder.join(name)
    };
    if let Some(id) = build_id.filter(|id| id.len() > 1) {
        for folder in folders.iter().cloned().chain([SYSTEM.into()]) {
            found.extend(by_build_id(&folder, id));
        }
        found.extend(debuginfod().map(|cache| cache.join(hexadecimal(id)).join("debuginfo")));
    }
    for folder in folders {
        found.extend([with_debug(folder), folder.join(name)]);
        found.extend(path.strip_prefix("/").map(|path| folder.join(path)));
    }
    let near = path.parent().unwrap_or(Path::new("/"));
    let below_system = Path::new(SYSTEM).join(near.strip_prefix("/").unwrap_or(near));
    found.extend([with_debug(near), with_debug(&near.join(".debug")), with_debug(&below_system)]);
    found
}

/// The layouts of a folder of debug files: that of gdb, and that of debuginfod's cache and server.
fn by_build_id(folder: &Path, id: &[u8]) -> [PathBuf; 5] {
    let digits = hexadecimal(id);
    let (first, rest) = digits.split_at(2);
    [
        folder.join(".build-id").join(first).join(format!("{rest}.debug")),
        folder.join(first).join(format!("{rest}.debug")),
        folder.join(&digits).join("debuginfo"),
        folder.join("buildid").join(&digits).join("debuginfo"),
        folder.join(&digits).join("executable"),
    ]
}

/// The folder in which debuginfod's client keeps what it fetched.
fn debuginfod() -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("DEBUGINFOD_CACHE_PATH")
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("debuginfod_client")))
        .or_else(|| Some(set("HOME")?.join(".cache/debuginfod_client")))
}

/// Whether a file is ELF and may have this build ID. Opens no pipe, where it might wait for ever.
pub fn fits(path: &Path, build_id: Option<&[u8]>) -> bool {
    let file = if path.is_file() { File::open(path).ok() } else { None };
    let head = file.as_ref().and_then(Head::of_file);
    let Some(head) = head else { return false };
    match (build_id, head.build_id) {
        (Some(wanted), Some(found)) => wanted == found,
        _ => true,
    }
}

/// The file with the debug information that several debug files share (made by `dwz`).
pub fn shared_debug_file(path: &Path) -> Option<PathBuf> {
    let content = ReadCache::new(File::open(path).ok()?);
    let object = object::File::parse(&content).ok()?;
    let (name, build_id) = object.gnu_debugaltlink().ok()??;
    let name = Path::new(std::ffi::OsStr::from_bytes(name));
    let beside = path.canonicalize().ok()?.parent()?.join(name);
    let mut candidates = vec![beside];
    candidates.extend(by_build_id(Path::new(SYSTEM), build_id));
    candidates.into_iter().find(|candidate| fits(candidate, Some(build_id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts() {
        let folders = ["/symbols".into()];
        let found = candidates(&folders, Path::new("/usr/bin/server"), Some(&[0xab, 0xcd, 0xef]));
        for path in [
            "/symbols/.build-id/ab/cdef.debug",
            "/symbols/abcdef/debuginfo",
            "/symbols/buildid/abcdef/debuginfo",
            "/usr/lib/debug/.build-id/ab/cdef.debug",
            "/symbols/server.debug",
            "/symbols/server",
            "/symbols/usr/bin/server",
            "/usr/bin/.debug/server.debug",
            "/usr/lib/debug/usr/bin/server.debug",
        ] {
            assert!(found.contains(&path.into()), "{path}: {found:?}");
        }
        assert!(candidates(&[], Path::new("/x"), None).len() >= 3);
    }

    #[test]
    fn a_file_of_another_build_does_not_fit() {
        let exe = std::env::current_exe().unwrap();
        let own = Head::of_file(&File::open(&exe).unwrap()).unwrap().build_id;
        assert!(fits(&exe, own.as_deref()) && fits(&exe, None));
        assert!(own.is_none() || !fits(&exe, Some(&[1, 2, 3])));
        assert!(!fits(Path::new("/etc/passwd"), None) && !fits(Path::new("/no/file"), None));
    }
}
