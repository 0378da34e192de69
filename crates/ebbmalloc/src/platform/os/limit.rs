//! Finds the memory limit of this process and how much of it is taken, without allocating.
//!
//! It is that of its control groups (cgroups(7), versions 1 and 2, at their usual mount points), or
//! the memory of the machine. What the kernel drops before it kills, as it caches files, does not
//! count as taken.

use core::ffi::CStr;
use core::mem::MaybeUninit;

use crate::platform::kernel::proc::read_file;
use crate::platform::kernel::syscall::call;

/// The lowest limit; `None` if none is known.
pub(super) fn limit() -> Option<u64> {
    Some(of_groups(b"").min(machine())).filter(|&limit| limit < u64::MAX)
}

/// The percentage of a limit that is taken: that of the group or machine nearest to its limit.
/// `None` if none is known.
pub(super) fn taken_percent() -> Option<u64> {
    let machine = machine_taken_percent(b"");
    taken_percent_of_groups(b"").into_iter().chain(machine).max()
}

/// Bytes of memory of the machine; `u64::MAX` if unknown.
fn machine() -> u64 {
    let mut info = MaybeUninit::<libc::sysinfo>::zeroed();
    // SAFETY: the kernel fills the struct, for which all-zero bytes are valid too.
    let info = unsafe {
        let _ = call!(libc::SYS_sysinfo, info.as_mut_ptr());
        info.assume_init()
    };
    match info.totalram * info.mem_unit as u64 {
        0 => u64::MAX,
        bytes => bytes,
    }
}

/// The percentage that the machine's processes and kernel have taken of its memory.
fn machine_taken_percent(root: &[u8]) -> Option<u64> {
    let mut text = [0; 256];
    let text = read(&[root, b"/proc/meminfo"], &mut text);
    let (all, available) = (field(text, b"MemTotal:")?, field(text, b"MemAvailable:")?);
    all.saturating_sub(available).saturating_mul(100).checked_div(all)
}

/// The lowest limit of this process's control groups in bytes; `u64::MAX` if there is none. `root`
/// replaces the directory `/` in tests.
fn of_groups(root: &[u8]) -> u64 {
    let mut lowest = u64::MAX;
    for_each_group(root, &mut |group| lowest = lowest.min(group.limit()));
    lowest
}

/// The largest percentage of its limit that one of this process's control groups has taken.
fn taken_percent_of_groups(root: &[u8]) -> Option<u64> {
    let mut most = None;
    for_each_group(root, &mut |group| {
        let limit = group.limit();
        if limit < u64::MAX {
            let percent = group.taken() as u128 * 100 / limit as u128;
            most = most.max(Some(percent as u64));
        }
    });
    most
}

/// A control group: its files have these paths before their names.
struct Group<'a> {
    path: [&'a [u8]; 3],
    names: &'a Names,
}

/// The names of a version's files, and of lines in memory.stat.
struct Names {
    limits: &'static [&'static [u8]],
    taken: &'static [u8],
    caches: [&'static [u8]; 2],
}

const VERSION_1: Names = Names {
    limits: &[b"/memory.limit_in_bytes"],
    taken: b"/memory.usage_in_bytes",
    caches: [b"total_inactive_file ", b"total_active_file "],
};

const VERSION_2: Names = Names {
    // The kernel kills processes beyond memory.max, and slows them down beyond memory.high.
    limits: &[b"/memory.max", b"/memory.high"],
    taken: b"/memory.current",
    caches: [b"inactive_file ", b"active_file "],
};

/// Calls `work` with each control group of this process that may limit memory: its groups and
/// their parents, up to the mount point. In a container, the path may be that outside it, of which
/// only the top directory exists inside.
///
/// A line of /proc/self/cgroup is `number:controllers:path`. Version 2 names no controllers.
fn for_each_group(root: &[u8], work: &mut dyn FnMut(&Group)) {
    let mut text = [0; 4096];
    for line in lines(read(&[root, b"/proc/self/cgroup"], &mut text)) {
        let Some((controllers, path)) = cut(line, b':').and_then(|(_, rest)| cut(rest, b':'))
        else {
            continue;
        };
        let (mount, names): (&[u8], _) = if controllers.is_empty() {
            (b"/sys/fs/cgroup", &VERSION_2)
        } else if controllers.split(|&byte| byte == b',').any(|name| name == b"memory") {
            (b"/sys/fs/cgroup/memory", &VERSION_1)
        } else {
            continue;
        };
        let mut path = Some(path.strip_suffix(b"/").unwrap_or(path));
        while let Some(at) = path {
            work(&Group { path: [root, mount, at], names });
            path = at.iter().rposition(|&byte| byte == b'/').map(|parent| &at[..parent]);
        }
    }
}

impl Group<'_> {
    /// The lower of its limits in bytes; `u64::MAX` if it has none.
    fn limit(&self) -> u64 {
        let limits = self.names.limits.iter().map(|name| number(&self.file(name)));
        limits.filter(|&limit| limit > 0).fold(u64::MAX, Ord::min)
    }

    /// Bytes taken, less those that cache files.
    fn taken(&self) -> u64 {
        let mut text = [0; 2048];
        let text = read(&self.file(b"/memory.stat"), &mut text);
        let caches = self.names.caches.iter().filter_map(|name| field(text, name));
        number(&self.file(self.names.taken)).saturating_sub(caches.sum())
    }

    fn file<'a>(&'a self, name: &'a [u8]) -> [&'a [u8]; 4] {
        let [root, mount, group] = self.path;
        [root, mount, group, name]
    }
}

/// The number in the line that begins with `name`.
#[inline(never)]
fn field(text: &[u8], name: &[u8]) -> Option<u64> {
    let rest = lines(text).find_map(|line| line.strip_prefix(name))?.trim_ascii();
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (digits > 0).then(|| parse(&rest[..digits]))
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n')
}

/// Splits `text` at the first such byte. Not inlined, as the functions below: small code matters
/// here, not speed.
#[inline(never)]
fn cut(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|&found| found == byte)?;
    Some((&text[..at], &text[at + 1..]))
}

/// The number in this file; 0 if the file has no number.
#[inline(never)]
fn number(path: &[&[u8]]) -> u64 {
    let mut text = [0; 32];
    let text = read(path, &mut text);
    parse(text.strip_suffix(b"\n").unwrap_or(text))
}

/// Parses a number. 0 for other text, such as `max`.
#[inline(never)]
fn parse(text: &[u8]) -> u64 {
    let mut digits = text.iter().map(|byte| byte.wrapping_sub(b'0') as u64);
    let number = digits.try_fold(0u64, |number, digit| {
        number.checked_mul(10)?.checked_add(digit).filter(|_| digit < 10)
    });
    number.unwrap_or(0)
}

/// Reads the file whose path is the concatenation of `parts`. Empty if the path is too long.
fn read<'a>(parts: &[&[u8]], buffer: &'a mut [u8]) -> &'a [u8] {
    let mut path = [0; 1024];
    let mut end = 0;
    for part in parts {
        let Some(destination) = path.get_mut(end..end + part.len()) else {
            return &[];
        };
        destination.copy_from_slice(part);
        end += part.len();
    }
    CStr::from_bytes_until_nul(&path).map_or(&[], |path| read_file(path, buffer))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::{env, format, fs, process};

    use super::*;

    /// A root directory with some files. Dropping it removes it.
    struct Root(PathBuf);

    impl Root {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = env::temp_dir().join(format!("ebbmalloc-{}-{name}", process::id()));
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self(root)
        }

        fn limit(&self) -> u64 {
            of_groups(self.0.to_str().unwrap().as_bytes())
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn limit(name: &str, files: &[(&str, &str)]) -> Option<u64> {
        Some(Root::new(name, files).limit()).filter(|&limit| limit < u64::MAX)
    }

    const GROUP: &str = "proc/self/cgroup";

    #[test]
    fn version_2_and_its_parents() {
        let own = (GROUP, "0::/a/b/c\n");
        let (a, b) = ("sys/fs/cgroup/a/memory.max", "sys/fs/cgroup/a/b/memory.max");
        let c = "sys/fs/cgroup/a/b/c/memory.max";
        assert_eq!(limit("own", &[own, (a, "max\n"), (b, "max\n"), (c, "1000\n")]), Some(1000));
        assert_eq!(limit("nested", &[own, (a, "800\n"), (b, "max\n"), (c, "1000\n")]), Some(800));
        assert_eq!(limit("middle", &[own, (b, "700"), (c, "max\n")]), Some(700));
        assert_eq!(limit("max", &[own, (a, "max\n"), (b, "max\n"), (c, "max\n")]), None);
    }

    #[test]
    fn what_slows_processes_down_limits_them_too() {
        let own = (GROUP, "0::/a/b\n");
        let max = |bytes| ("sys/fs/cgroup/a/b/memory.max", bytes);
        let high = |bytes| ("sys/fs/cgroup/a/b/memory.high", bytes);
        let outer = |bytes| ("sys/fs/cgroup/a/memory.high", bytes);
        assert_eq!(limit("high", &[own, max("1000\n"), high("900\n")]), Some(900));
        assert_eq!(limit("high-only", &[own, max("max\n"), high("900\n")]), Some(900));
        assert_eq!(limit("max-first", &[own, max("1000\n"), high("1100\n")]), Some(1000));
        assert_eq!(limit("max-only", &[own, max("1000\n"), high("max\n")]), Some(1000));
        assert_eq!(limit("outer", &[own, max("1000\n"), high("900\n"), outer("800")]), Some(800));
    }

    #[test]
    fn containers_see_themselves_at_the_top() {
        let top = ("sys/fs/cgroup/memory.max", "5000\n");
        assert_eq!(limit("namespace", &[(GROUP, "0::/\n"), top]), Some(5000));
        assert_eq!(limit("outside", &[(GROUP, "0::/docker/0123\n"), top]), Some(5000));
        assert_eq!(limit("above", &[(GROUP, "0::/../..\n"), top]), Some(5000));
    }

    #[test]
    fn version_1_and_hybrids() {
        let lines = "12:cpu,cpuacct:/x\n4:memory:/jobs/one\n1:name=systemd:/jobs\n";
        let one = ("sys/fs/cgroup/memory/jobs/one/memory.limit_in_bytes", "9223372036854771712\n");
        let jobs = ("sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "3000\n");
        assert_eq!(limit("v1", &[(GROUP, lines), one, jobs]), Some(3000));
        let both = format!("{lines}0::/user\n");
        assert_eq!(limit("hybrid", &[(GROUP, &both), one, jobs]), Some(3000));
        let cpu = ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "10\n");
        assert_eq!(limit("other", &[(GROUP, "12:cpu,memoryless:/x\n"), cpu]), None);
    }

    #[test]
    fn what_is_missing_or_garbage_is_no_limit() {
        assert_eq!(limit("nothing", &[]), None);
        assert_eq!(limit("no-file", &[(GROUP, "0::/a\n")]), None);
        let file = "sys/fs/cgroup/a/memory.max";
        let long = "9".repeat(100);
        for (n, text) in ["", "\n", "12 monkeys", "-5", "0\n", &long, "\0"].iter().enumerate() {
            let name = format!("garbage-{n}");
            assert_eq!(limit(&name, &[(GROUP, "0::/a\n"), (file, text)]), None, "{text:?}");
        }
        let deep = format!("0::{}\n:::\n\n7\n0::", "/deep".repeat(900));
        let top = ("sys/fs/cgroup/memory.max", "77\n");
        assert_eq!(limit("lines", &[(GROUP, &deep), top]), Some(77));
    }

    #[test]
    fn the_group_nearest_to_its_limit_counts_without_its_caches() {
        let taken = |name: &str, files: &[(&str, &str)]| {
            let root = Root::new(name, files);
            taken_percent_of_groups(root.0.to_str().unwrap().as_bytes())
        };
        let own = (GROUP, "0::/a/b\n");
        let outer = ("sys/fs/cgroup/a/memory.max", "2000\n");
        let inner = ("sys/fs/cgroup/a/b/memory.high", "1000\n");
        let outer_taken = ("sys/fs/cgroup/a/memory.current", "1900\n");
        let inner_taken = ("sys/fs/cgroup/a/b/memory.current", "900\n");
        let stat = "anon 300\nfile 600\nshmem 50\ninactive_file 400\nactive_file 100\n";
        let inner_stat = ("sys/fs/cgroup/a/b/memory.stat", stat);
        assert_eq!(taken("without-limits", &[own, inner_taken]), None);
        assert_eq!(taken("inner", &[own, inner, inner_taken]), Some(90));
        assert_eq!(taken("caches", &[own, inner, inner_taken, inner_stat]), Some(40));
        let both = [own, inner, inner_taken, inner_stat, outer, outer_taken];
        assert_eq!(taken("outer-taken", &both), Some(95));
        assert_eq!(taken("unreadable", &[own, outer]), Some(0));
        let stat = "inactive_file 1\ntotal_inactive_file 30\ntotal_active_file 20\n";
        let version_1 = [
            (GROUP, "4:memory:/jobs\n"),
            ("sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "1000\n"),
            ("sys/fs/cgroup/memory/jobs/memory.usage_in_bytes", "800\n"),
            ("sys/fs/cgroup/memory/jobs/memory.stat", stat),
        ];
        assert_eq!(taken("taken-v1", &version_1), Some(75));
    }

    #[test]
    fn the_machine_counts_too() {
        let text = "MemTotal:       1000 kB\nMemFree:  5 kB\nMemAvailable:    150 kB\n";
        let root = Root::new("machine", &[("proc/meminfo", text)]);
        assert_eq!(machine_taken_percent(root.0.to_str().unwrap().as_bytes()), Some(85));
        assert!(super::taken_percent().is_some_and(|percent| percent <= 100));
    }

    #[test]
    fn this_machine_has_memory() {
        let all = machine();
        assert!(all > 1 << 20 && all < u64::MAX && super::limit() <= Some(all));
    }

    #[test]
    fn reading_keeps_errno() {
        // SAFETY: the address of this thread's `errno` is valid.
        unsafe {
            *libc::__errno_location() = 4321;
            super::limit();
            assert_eq!(*libc::__errno_location(), 4321);
        }
    }
}
