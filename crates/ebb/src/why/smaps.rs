//! Reads the kernel's list of a process's mappings (/proc/PID/smaps), and puts them into groups for
//! people.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;

use super::memory::refused;
use crate::procfs::kib;

/// A mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub range: Range<usize>,
    permissions: String,
    inode: u64,
    name: String,
    /// Resident bytes, and bytes that were swapped out.
    pub resident: u64,
    pub swapped: u64,
}

/// The use of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Group {
    Pymalloc,
    Anonymous,
    Heap,
    Stacks,
    Code,
    Files,
    Shared,
    Kernel,
    Ours,
}

impl Group {
    pub const ALL: [Self; 9] = [
        Self::Pymalloc,
        Self::Anonymous,
        Self::Heap,
        Self::Stacks,
        Self::Code,
        Self::Files,
        Self::Shared,
        Self::Kernel,
        Self::Ours,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Pymalloc => "pymalloc_arenas",
            Self::Anonymous => "other_anonymous",
            Self::Heap => "brk_heap",
            Self::Stacks => "stacks",
            Self::Code => "program_and_libraries",
            Self::Files => "other_files",
            Self::Shared => "shared_memory",
            Self::Kernel => "kernel",
            Self::Ours => "unaccounted",
        }
    }

    pub fn label(self) -> &'static str {
        match self {
            Self::Pymalloc => "pymalloc arenas",
            Self::Anonymous => "other anonymous memory",
            Self::Heap => "brk heap",
            Self::Stacks => "stacks",
            Self::Code => "program and libraries",
            Self::Files => "other files",
            Self::Shared => "shared memory",
            Self::Kernel => "kernel pages",
            Self::Ours => "unaccounted",
        }
    }

    /// Whether the names of its mappings mean something to people.
    pub fn has_names(self) -> bool {
        !matches!(self, Self::Pymalloc | Self::Ours)
    }

    pub fn meaning(self) -> &'static str {
        match self {
            Self::Pymalloc => {
                "Memory that Python maps itself, without malloc, for its objects and other blocks \
                 of up to 512 bytes."
            }
            Self::Anonymous => {
                "Memory that the program maps itself: a garbage collector's heap, an arena, a JIT, \
                 another allocator."
            }
            Self::Heap => {
                "Memory from brk, of another allocator that is used before or beside ebbmalloc."
            }
            Self::Stacks => "The used part of the threads' stacks.",
            Self::Code => {
                "Code and data of the program and its libraries. Processes that run the same code \
                 share it."
            }
            Self::Files => "The parts of mapped files that were read.",
            Self::Shared => "Memory shared with other processes.",
            Self::Kernel => "Pages that the kernel maps into each process.",
            Self::Ours => "In ebbmalloc's mappings, but changed since its tables were read.",
        }
    }

    pub fn knob(self) -> &'static str {
        match self {
            Self::Pymalloc => "PYTHONMALLOC=malloc puts all of it on ebbmalloc",
            Self::Anonymous => "set options of that runtime, such as a limit of its heap",
            Self::Heap => "find out why the program uses that allocator",
            Self::Stacks => "use fewer threads, or less recursion",
            Self::Code => "use fewer or smaller libraries",
            Self::Files => "map less, or MADV_DONTNEED",
            Self::Shared => "the program",
            Self::Kernel => "",
            Self::Ours => "look again",
        }
    }
}

impl Mapping {
    /// All mappings of a process.
    pub fn all_of(pid: libc::pid_t) -> anyhow::Result<Vec<Self>> {
        let text = fs::read(format!("/proc/{pid}/smaps")).map_err(|error| refused(pid, error))?;
        Ok(parse(&String::from_utf8_lossy(&text)))
    }

    /// Whether it is private writable memory, as heaps are.
    pub fn is_private_memory(&self) -> bool {
        self.permissions == "rw-p"
            && self.inode == 0
            && (self.name.is_empty() || self.name.starts_with("[anon:"))
    }

    /// The name of the mapped file.
    pub fn file_name(&self) -> Option<&str> {
        self.is_file().then(|| self.name.rsplit('/').next().unwrap_or(""))
    }

    fn is_file(&self) -> bool {
        self.name.starts_with('/') && !self.is_shared_memory()
    }

    fn is_shared_memory(&self) -> bool {
        ["/dev/shm/", "/memfd:", "/SYSV", "/dev/zero", "/anon_hugepage"]
            .iter()
            .any(|start| self.name.starts_with(start))
    }

    /// Whether it is inaccessible memory of at most 1 MiB, as below stacks of threads.
    fn is_guard(&self) -> bool {
        self.permissions == "---p" && self.inode == 0 && self.range.len() <= 1 << 20
    }
}

/// The group of each mapping, and its name there.
pub fn grouped<'a>(
    mappings: &'a [Mapping],
    exe: Option<&'a str>,
    stack_pointers: &'a [usize],
) -> impl Iterator<Item = (&'a Mapping, Group, &'a str)> {
    let mut before: Option<(&Mapping, Group, &str)> = None;
    mappings.iter().map(move |mapping| {
        let name = mapping.name.as_str();
        let adjacent = before.filter(|(before, ..)| before.range.end == mapping.range.start);
        let (group, name) = match name {
            "[heap]" => (Group::Heap, name),
            "[stack]" => (Group::Stacks, "main thread"),
            _ if name.starts_with("[anon") => (Group::Anonymous, name),
            _ if name.starts_with('[') => (Group::Kernel, name),
            _ if mapping.is_shared_memory() => (Group::Shared, name),
            _ if Some(name) == exe || name.contains(".so") && mapping.is_file() => {
                (Group::Code, name)
            }
            _ if mapping.is_file() => (Group::Files, name),
            _ if mapping.permissions.ends_with('s') => (Group::Shared, name),
            _ if stack_pointers.iter().any(|pointer| mapping.range.contains(pointer)) => {
                (Group::Stacks, "thread")
            }
            _ => match adjacent {
                // The kernel does not report the stack pointer of a running thread.
                Some((guard, ..)) if guard.is_guard() && mapping.permissions == "rw-p" => {
                    (Group::Stacks, "thread")
                }
                // The part of a library's data that starts as zeros.
                Some((file, Group::Code, name)) if file.is_file() => (Group::Code, name),
                _ => (Group::Anonymous, "unnamed"),
            },
        };
        before = Some((mapping, group, name));
        (mapping, group, name)
    })
}

/// Stack pointers of the threads that wait in a system call: the last number but one of
/// /proc/PID/task/TID/syscall.
pub fn stack_pointers(pid: libc::pid_t) -> Vec<usize> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let pointer = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("syscall")).ok()?;
        let number = text.split_whitespace().rev().nth(1)?.strip_prefix("0x")?;
        usize::from_str_radix(number, 16).ok()
    };
    tasks.filter_map(pointer).collect()
}

fn parse(text: &str) -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = Vec::new();
    for line in text.lines() {
        if let Some(mapping) = head(line) {
            mappings.push(mapping);
        } else if let (Some(mapping), Some((name, value))) =
            (mappings.last_mut(), line.split_once(':'))
        {
            match name {
                "Rss" => mapping.resident = kib(value).unwrap_or(0),
                "Swap" => mapping.swapped = kib(value).unwrap_or(0),
                _ => {}
            }
        }
    }
    mappings
}

/// A line `start-end permissions offset device inode name`.
fn head(line: &str) -> Option<Mapping> {
    let (start, rest) = line.split_once('-')?;
    let (end, rest) = rest.split_once(' ')?;
    let address = |digits| usize::from_str_radix(digits, 16).ok();
    let (start, end) = (address(start)?, address(end)?);
    let mut fields = rest.splitn(5, ' ');
    let permissions = fields.next()?.to_string();
    let inode = fields.nth(2)?.parse().ok()?;
    let name = fields.next().unwrap_or("").trim().trim_end_matches(" (deleted)").to_string();
    Some(Mapping { range: start..end, permissions, inode, name, resident: 0, swapped: 0 })
}

/// Whether a mapping begins in one of these ranges, which are in the order of addresses.
pub fn begins_in(mapping: &Mapping, ours: &[Range<usize>]) -> bool {
    let after = ours.partition_point(|range| range.start <= mapping.range.start);
    ours[..after].last().is_some_and(|range| range.contains(&mapping.range.start))
}

/// The bytes of a mapping that do not belong to ebbmalloc. Mappings join where they touch, so one
/// may hold both. `ours` is in the order of addresses.
pub fn less(mapping: &Mapping, ours: &[Range<usize>]) -> u64 {
    let first = ours.partition_point(|range| range.end <= mapping.range.start);
    let within = ours[first..].iter().take_while(|range| range.start < mapping.range.end);
    let taken = within.map(|range| {
        let start = range.start.max(mapping.range.start);
        range.end.min(mapping.range.end).saturating_sub(start)
    });
    mapping.resident.saturating_sub(taken.sum::<usize>() as u64)
}

/// Sums by name, the largest first.
pub fn largest(parts: impl Iterator<Item = (String, u64)>, most: usize) -> Vec<(String, u64)> {
    let mut sums = BTreeMap::new();
    for (name, bytes) in parts.filter(|part| part.1 > 0) {
        *sums.entry(name).or_insert(0) += bytes;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|sum| std::cmp::Reverse(sum.1));
    sums.truncate(most);
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
55b0bd532000-55b0bd534000 r--p 00000000 fe:00 247026                     /usr/bin/a program
Size:                  8 kB
Rss:                   8 kB
Swap:                  4 kB
VmFlags: rd mr mw me
55b0be000000-55b0be021000 rw-p 00000000 00:00 0                          [heap]
Rss:                  20 kB
7f0000000000-7f0000001000 ---p 00000000 00:00 0
Rss:                   0 kB
7f0000001000-7f0000801000 rw-p 00000000 00:00 0
Rss:                  12 kB
7f0001000000-7f0001001000 rw-p 00000000 fe:00 99                         /usr/lib/libc.so.6
Rss:                   4 kB
7f0001001000-7f0001002000 rw-p 00000000 00:00 0
Rss:                   4 kB
7f0002000000-7f0002100000 rw-p 00000000 00:00 0
Rss:                 100 kB
7f0003000000-7f0003100000 rw-s 00000000 00:01 5                          /memfd:x (deleted)
Rss:                  40 kB
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
Rss:                  16 kB
7ffc00100000-7ffc00102000 r-xp 00000000 00:00 0                          [vdso]
Rss:                   8 kB
";

    #[test]
    fn mappings_are_read_and_grouped() {
        let mappings = parse(TEXT);
        assert_eq!(mappings[0].name, "/usr/bin/a program");
        assert_eq!((mappings[0].resident, mappings[0].swapped), (8 << 10, 4 << 10));
        let groups: Vec<_> = grouped(&mappings, Some("/usr/bin/a program"), &[])
            .map(|(_, group, _)| group)
            .collect();
        use Group::*;
        assert_eq!(
            groups,
            [Code, Heap, Anonymous, Stacks, Code, Code, Anonymous, Shared, Stacks, Kernel]
        );
        let pointer = [0x7f0002000010];
        let groups: Vec<_> =
            grouped(&mappings, None, &pointer).map(|(_, group, _)| group).collect();
        assert_eq!((groups[0], groups[6]), (Files, Stacks));
    }

    #[test]
    fn what_is_ours_is_taken_off_once() {
        let mapping = &parse(TEXT)[6];
        let start = mapping.range.start;
        assert_eq!(less(mapping, &[]), 100 << 10);
        let ours =
            [start - 8192..start - 4096, start - 4096..start + 4096, start + 8192..start + 12288];
        assert_eq!(less(mapping, &ours), 92 << 10);
        assert_eq!(less(mapping, std::slice::from_ref(&mapping.range)), 0);
    }

    #[test]
    fn garbage_is_no_mapping() {
        assert_eq!(parse("no\n-\n12-zz rw-p 0 0 0\nRss: 12 kB\n"), []);
    }
}
