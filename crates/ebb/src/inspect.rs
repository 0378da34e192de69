//! Inspects a program: follows its `#!` lines to the executable, and reads the facts of that ELF
//! file.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use memchr::memmem;
use object::elf::{DT_NEEDED, FileHeader32, FileHeader64};
use object::read::elf::{ElfFile, FileHeader, ProgramHeader};
use object::{Architecture, FileKind, Object, ObjectSymbol};
use rustix::fs::StatVfsMountFlags;

use crate::program;

/// Bytes at a file's beginning that the kernel searches for a `#!` line.
const SCRIPT_HEAD: usize = 256;
/// The number of `#!` lines that the kernel follows.
const SCRIPT_DEPTH: usize = 5;

/// The file that the kernel executes in the end, and its kind.
pub struct Program {
    /// The last file of the chain: the requested one, if it is no script.
    pub path: PathBuf,
    pub kind: Kind,
}

pub enum Kind {
    Elf(Elf),
    /// A script without a `#!` line, or another file that the kernel cannot execute.
    Unknown,
    /// A script whose interpreter does not exist.
    NoInterpreter(OsString),
    /// Not readable for this user, though perhaps executable.
    Unreadable(io::Error),
}

/// The facts of an ELF file that decide whether preloading works.
#[derive(Debug, PartialEq, Eq)]
pub struct Elf {
    pub architecture: Architecture,
    pub bits: u8,
    /// Whether it is a shared library or a position-independent executable.
    pub shared: bool,
    /// The loader that it requests; `None` for a static program.
    pub loader: Option<String>,
    /// The libraries that it is linked to.
    pub needed: Vec<String>,
    /// Whether it exports its own `malloc`.
    pub defines_malloc: bool,
    /// Whether it is or contains ebbmalloc.
    pub ebbmalloc: bool,
    /// The allocator compiled into it, if one is recognised.
    pub embedded: Option<&'static str>,
    pub go: bool,
}

/// Strings that show that an allocator is compiled into a program, even one without symbols.
const EMBEDDED: [(&str, &[&str]); 3] = [
    ("mimalloc", &["mi_malloc", "mimalloc: "]),
    ("jemalloc", &["je_malloc", "<jemalloc>: "]),
    ("tcmalloc", &["tc_malloc", "TCMALLOC_SAMPLE_PARAMETER"]),
];

impl Program {
    /// Follows the `#!` lines from `path` to the executable.
    pub fn of(path: &Path) -> Self {
        let mut path = path.to_owned();
        for _ in 0..SCRIPT_DEPTH {
            let head = match head(&path) {
                Ok(head) => head,
                Err(error) => {
                    return Self { path, kind: Kind::Unreadable(error) };
                }
            };
            let Some(name) = interpreter(&head) else {
                break;
            };
            match program::find(&name) {
                Ok(next) => path = next,
                Err(_) => {
                    return Self { path, kind: Kind::NoInterpreter(name) };
                }
            }
        }
        let kind = match std::fs::read(&path) {
            Ok(content) => elf(&content).map_or(Kind::Unknown, Kind::Elf),
            Err(error) => Kind::Unreadable(error),
        };
        Self { path, kind }
    }

    /// Whether the loader ignores its environment: the program starts with more privileges than its
    /// user has.
    pub fn privileged(&self) -> bool {
        let Ok(meta) = self.path.metadata() else {
            return false;
        };
        if rustix::fs::statvfs(&self.path)
            .is_ok_and(|system| system.f_flag.contains(StatVfsMountFlags::NOSUID))
        {
            return false;
        }
        let (user, group) =
            (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        changes_identity(meta.mode(), meta.uid(), meta.gid(), user, group)
            || (user != 0
                && rustix::fs::getxattr(&self.path, c"security.capability", &mut [0u8; 64]).is_ok())
    }
}

/// Whether a file's set-user-id or set-group-id bit changes the identity of this user.
fn changes_identity(mode: u32, owner: u32, file_group: u32, user: u32, group: u32) -> bool {
    // Without the group's execute bit, the set-group-id bit does not change the group.
    const GROUP: u32 = libc::S_ISGID | libc::S_IXGRP;
    (mode & libc::S_ISUID != 0 && owner != user) || (mode & GROUP == GROUP && file_group != group)
}

fn head(path: &Path) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    File::open(path)?.take(SCRIPT_HEAD as u64).read_to_end(&mut head)?;
    Ok(head)
}

/// The program that a script's first line names. Skips `env`, which only searches PATH.
fn interpreter(head: &[u8]) -> Option<OsString> {
    let line = head.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let mut words = line.split(|byte| b" \t".contains(byte)).filter(|word| !word.is_empty());
    let interpreter = words.next()?;
    let is_env = Path::new(OsStr::from_bytes(interpreter)).file_name() == Some(OsStr::new("env"));
    let name =
        is_env.then(|| words.find(|word| word[0] != b'-' && !word.contains(&b'='))).flatten();
    Some(OsStr::from_bytes(name.unwrap_or(interpreter)).to_owned())
}

/// Parses an ELF file; `None` if it is not one, or is damaged.
pub fn elf(content: &[u8]) -> Option<Elf> {
    match FileKind::parse(content).ok()? {
        FileKind::Elf32 => facts::<FileHeader32<object::Endianness>>(content, 32),
        FileKind::Elf64 => facts::<FileHeader64<object::Endianness>>(content, 64),
        _ => None,
    }
}

fn facts<H: FileHeader>(content: &[u8], bits: u8) -> Option<Elf> {
    let file = ElfFile::<H>::parse(content).ok()?;
    let endian = file.endian();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let loader = file
        .elf_program_headers()
        .iter()
        .find_map(|header| header.interpreter(endian, content).ok()?);
    let dynamic = file.elf_dynamic_table().unwrap_or_default();
    let needed = dynamic
        .iter()
        .filter(|entry| entry.tag == DT_NEEDED)
        .filter_map(|entry| dynamic.string(entry).ok());
    let exports = |name: &str| {
        file.dynamic_symbols().any(|symbol| symbol.is_definition() && symbol.name() == Ok(name))
    };
    let has = |name: &str| memmem::find(content, name.as_bytes()).is_some();
    let ebbmalloc = exports("ebb_malloc")
        || file.symbols().any(|symbol| symbol.is_definition() && symbol.name() == Ok("ebb_malloc"));
    Some(Elf {
        architecture: file.architecture(),
        bits,
        shared: file.kind() == object::ObjectKind::Dynamic,
        loader: loader.map(text),
        needed: needed.map(text).collect(),
        defines_malloc: exports("malloc"),
        ebbmalloc,
        embedded: EMBEDDED
            .iter()
            .find(|(_, names)| names.iter().any(|name| has(name)))
            .map(|&(name, _)| name),
        go: file.section_by_name(".gopclntab").is_some()
            || file.section_by_name(".note.go.buildid").is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn first_lines() {
        let name =
            |line: &str| interpreter(line.as_bytes()).map(|name| name.into_string().unwrap());
        assert_eq!(name("#!/bin/sh\necho").as_deref(), Some("/bin/sh"));
        assert_eq!(name("#! /usr/bin/perl -w\n").as_deref(), Some("/usr/bin/perl"));
        assert_eq!(name("#!/usr/bin/env python3\n").as_deref(), Some("python3"));
        assert_eq!(name("#!/usr/bin/env -S A=1 node --x\n").as_deref(), Some("node"));
        assert_eq!(name("#!/usr/bin/env\n").as_deref(), Some("/usr/bin/env"));
        assert_eq!(name("#!\n"), None);
        assert_eq!(name("echo"), None);
        assert_eq!(name(""), None);
    }

    #[test]
    fn follows_scripts_to_the_executable() {
        let folder = tempfile::tempdir().unwrap();
        let script = |name: &str, text: String| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let inner = script("inner", "#!/usr/bin/env sh\nexit 0\n".into());
        let outer = script("outer", format!("#!{}\n", inner.display()));
        let program = Program::of(&outer);
        assert!(
            matches!(program.kind, Kind::Elf(_)) && program.path.ends_with("sh"),
            "{}",
            program.path.display()
        );

        let lost = Program::of(&script("lost", "#!/no/such/interpreter\n".into()));
        assert!(matches!(lost.kind, Kind::NoInterpreter(name) if name == "/no/such/interpreter"));
        assert!(matches!(Program::of(&script("bare", "exit 0\n".into())).kind, Kind::Unknown));
        assert!(matches!(Program::of(&folder.path().join("missing")).kind, Kind::Unreadable(_)));
        let circle = folder.path().join("circle");
        let text = format!("#!{}\n", circle.display());
        assert!(matches!(Program::of(&script("circle", text)).kind, Kind::Unknown));
    }

    #[test]
    fn reads_this_test_itself() {
        let elf = elf(&fs::read("/proc/self/exe").unwrap()).unwrap();
        assert_eq!((elf.bits, elf.go, elf.defines_malloc), (usize::BITS as u8, false, false));
        assert!(elf.loader.unwrap().contains("ld"));
        assert!(elf.needed.iter().any(|name| name.starts_with("libc.")), "{:?}", elf.needed);
    }

    #[test]
    fn damaged_files_are_no_elf() {
        let content = fs::read("/proc/self/exe").unwrap();
        for length in [0, 3, 4, 16, 63, 64, 1000, content.len() / 2] {
            // The parser may accept truncated files or not, but must not panic.
            let _ = elf(&content[..length]);
        }
        assert_eq!(elf(b"\x7fELF"), None);
        assert_eq!(elf(b"hello"), None);
    }

    #[test]
    fn set_id_bits_count_only_where_they_change_somebody() {
        let (user, root) = (1000, 0);
        assert!(changes_identity(0o4755, root, root, user, user));
        assert!(!changes_identity(0o4755, root, root, root, root));
        assert!(changes_identity(0o4755, user, root, root, root));
        assert!(changes_identity(0o2755, root, root, user, user));
        assert!(!changes_identity(0o2745, root, root, user, user));
        assert!(!changes_identity(0o755, root, root, user, user));
    }
}
