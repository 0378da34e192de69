//! How much memory this process may have: what its control groups allow (cgroups(7), versions 1
//! and 2, where they are mounted by custom), or what the machine has. Read without allocating.

use core::ffi::CStr;
use core::mem::MaybeUninit;

use super::linux::keeping_errno;
use super::proc::read_file;

/// The least of all limits, in bytes.
pub(super) fn limit() -> Option<u64> {
    lesser(group_limit(b""), machine())
}

fn lesser(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        _ => one.or(other),
    }
}

fn machine() -> Option<u64> {
    let mut info = MaybeUninit::<libc::sysinfo>::zeroed();
    // SAFETY: fills the struct that it is given; all zero bytes are valid.
    let info = unsafe {
        keeping_errno(|| libc::sysinfo(info.as_mut_ptr()));
        info.assume_init()
    };
    Some(info.totalram * info.mem_unit as u64).filter(|&bytes| bytes > 0)
}

/// The least limit of the groups that this process is in, for a root directory other than `/` in
/// tests. A line of /proc/self/cgroup is `number:controllers:path`; version 2 names no controllers.
fn group_limit(root: &[u8]) -> Option<u64> {
    let mut text = [0; 4096];
    let groups = read(&[root, b"/proc/self/cgroup"], &mut text);
    let limit_of = |line: &[u8]| {
        let mut fields = line.splitn(3, |&byte| byte == b':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        if controllers.is_empty() {
            least([root, b"/sys/fs/cgroup", group, b"/memory.max"])
        } else if controllers.split(|&byte| byte == b',').any(|name| name == b"memory") {
            least([root, b"/sys/fs/cgroup/memory", group, b"/memory.limit_in_bytes"])
        } else {
            None
        }
    };
    groups.split(|&byte| byte == b'\n').map(limit_of).fold(None, lesser)
}

/// The least limit of a group and of those around it, up to where the hierarchy is mounted. In
/// a container the path may be that outside, of which nothing is there but the top.
fn least([root, mount, group, file]: [&[u8]; 4]) -> Option<u64> {
    let mut group = group.strip_suffix(b"/").unwrap_or(group);
    let mut least = None;
    loop {
        let mut text = [0; 32];
        let limit = bytes(read(&[root, mount, group, file], &mut text));
        least = lesser(least, limit);
        let Some(parent) = group.iter().rposition(|&byte| byte == b'/') else {
            return least;
        };
        group = &group[..parent];
    }
}

/// A number above zero; `max` is none.
fn bytes(text: &[u8]) -> Option<u64> {
    str::from_utf8(text.trim_ascii()).ok()?.parse().ok().filter(|&bytes| bytes > 0)
}

/// Reads the file whose path these parts make up; nothing if they are too long for one.
fn read<'a>(parts: &[&[u8]], buffer: &'a mut [u8]) -> &'a [u8] {
    let mut path = [0; 1024];
    let mut end = 0;
    for part in parts {
        let Some(room) = path.get_mut(end..end + part.len()) else {
            return &[];
        };
        room.copy_from_slice(part);
        end += part.len();
    }
    CStr::from_bytes_until_nul(&path).map_or(&[], |path| read_file(path, buffer))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::{env, format, fs, process};

    use super::*;

    /// A root directory with these files in it, removed afterwards.
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

        fn limit(&self) -> Option<u64> {
            group_limit(self.0.to_str().unwrap().as_bytes())
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn limit(name: &str, files: &[(&str, &str)]) -> Option<u64> {
        Root::new(name, files).limit()
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
        let all = machine().unwrap();
        assert!(all > 1 << 20 && super::limit().unwrap() <= all);
    }

    #[test]
    fn reading_keeps_errno() {
        // SAFETY: this thread's errno.
        unsafe {
            *libc::__errno_location() = 4321;
            super::limit();
            assert_eq!(*libc::__errno_location(), 4321);
        }
    }
}
