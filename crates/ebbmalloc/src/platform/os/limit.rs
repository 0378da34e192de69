//! Finds the memory limit of this process, without allocating.
//!
//! It is that of its control groups (cgroups(7), versions 1 and 2, at their usual mount points), or
//! the memory of the machine.

use core::ffi::CStr;
use core::mem::MaybeUninit;

use crate::platform::kernel::proc::read_file;
use crate::platform::kernel::syscall::call;

/// The lowest limit; `None` if none is known.
pub(super) fn limit() -> Option<u64> {
    Some(of_groups(b"").min(machine())).filter(|&limit| limit < u64::MAX)
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

/// The lowest limit of this process's control groups in bytes; `u64::MAX` if there is none. `root`
/// replaces the directory `/` in tests.
///
/// A line of /proc/self/cgroup is `number:controllers:path`. Version 2 names no controllers.
fn of_groups(root: &[u8]) -> u64 {
    let mut text = [0; 4096];
    let groups = read(&[root, b"/proc/self/cgroup"], &mut text);
    let memory_of = |line: &[u8]| {
        let (controllers, group) = cut(cut(line, b':')?.1, b':')?;
        if controllers.is_empty() {
            // The kernel kills processes beyond memory.max, and slows them down beyond memory.high.
            Some(lowest([root, b"/sys/fs/cgroup", group], &[b"/memory.max", b"/memory.high"]))
        } else if controllers.split(|&byte| byte == b',').any(|name| name == b"memory") {
            Some(lowest([root, b"/sys/fs/cgroup/memory", group], &[b"/memory.limit_in_bytes"]))
        } else {
            None
        }
    };
    lines(groups).filter_map(memory_of).fold(u64::MAX, Ord::min)
}

/// The lowest limit of a group and its parents, up to the mount point. In a container, the path
/// may be that outside it, of which only the top directory exists inside.
fn lowest([root, mount, group]: [&[u8]; 3], limits: &[&[u8]]) -> u64 {
    let mut path = [root, mount, group.strip_suffix(b"/").unwrap_or(group), b""];
    let mut lowest = u64::MAX;
    loop {
        for limit in limits {
            path[3] = limit;
            let limit = number(&path);
            lowest = if limit > 0 { lowest.min(limit) } else { lowest };
        }
        let Some(parent) = path[2].iter().rposition(|&byte| byte == b'/') else {
            return lowest;
        };
        path[2] = &path[2][..parent];
    }
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
