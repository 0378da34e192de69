//! Reads the memory and the executable of a process from `/proc`.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A process as it was at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Resident memory, in bytes.
    pub resident: u64,
    /// The peak of resident memory, in bytes.
    pub peak: Option<u64>,
    /// The executed file.
    pub exe: Option<PathBuf>,
    /// Whether the requested library is mapped; `None` if that may not be read.
    pub mapped: Option<bool>,
}

impl Snapshot {
    /// Takes a snapshot of a thread's process; `None` if it has no memory any more, or may not be
    /// read.
    pub fn take(tid: libc::pid_t, library: Option<&Path>) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
        let resident = resident_exactly(tid).or_else(|| line(&status, "VmRSS:"))?;
        Some(Self {
            resident,
            peak: line(&status, "VmHWM:"),
            exe: fs::read_link(format!("/proc/{tid}/exe")).ok(),
            mapped: library.and_then(|library| is_mapped(tid, library)),
        })
    }
}

/// The resident memory of a process, in bytes; `None` if it has no memory, or may not be read.
pub fn resident(pid: libc::pid_t) -> Option<u64> {
    resident_exactly(pid).or_else(|| resident_roughly(pid))
}

/// The same from the kernel's running count: a few hundred KiB off, and quick.
pub fn resident_roughly(pid: libc::pid_t) -> Option<u64> {
    line(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "VmRSS:")
}

/// The resident memory, exactly, by a walk through the page tables: the kernel counts a process's
/// pages per CPU and adds them up lazily.
fn resident_exactly(pid: libc::pid_t) -> Option<u64> {
    line(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?, "Rss:")
}

fn is_mapped(tid: libc::pid_t, library: &Path) -> Option<bool> {
    let path = library.as_os_str().as_bytes();
    let maps = fs::read(format!("/proc/{tid}/maps")).ok()?;
    let mut lines = maps.split(|&byte| byte == b'\n');
    Some(lines.any(|line| line.strip_suffix(path).is_some_and(|head| head.ends_with(b" "))))
}

/// The value of a line `name   123 kB`, in bytes.
fn line(text: &str, name: &str) -> Option<u64> {
    kib(text.lines().find_map(|line| line.strip_prefix(name))?)
}

/// A size as the kernel writes it, `  123 kB`, in bytes.
pub fn kib(text: &str) -> Option<u64> {
    text.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_kib_lines() {
        let text = "VmHWM:\t    1536 kB\nRss:  8 kB\nThreads:\t1\n";
        assert_eq!(line(text, "VmHWM:"), Some(1536 * 1024));
        assert_eq!(line(text, "Rss:"), Some(8192));
        assert_eq!(line(text, "Threads:"), None);
        assert_eq!(line(text, "Nothing:"), None);
    }

    #[test]
    fn sees_itself() {
        let pid = std::process::id() as libc::pid_t;
        let me = std::env::current_exe().unwrap();
        let snapshot = Snapshot::take(pid, Some(&me)).unwrap();
        assert!(snapshot.resident > 64 * 1024 && snapshot.peak >= Some(64 * 1024));
        assert_eq!(snapshot.exe.as_deref(), Some(me.as_path()));
        assert_eq!(snapshot.mapped, Some(true));
        let other = Snapshot::take(pid, Some(Path::new("/lib/not-mapped.so"))).unwrap();
        assert_eq!(other.mapped, Some(false));
    }
}
