//! The mapped code of a process: which file is where, with its build ID.
//!
//! A file may be gone or replaced since it was mapped. So the build ID is read from the process's
//! memory, and the file is opened while the process lives.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;

use object::Endianness;
use object::elf::{ELF_NOTE_GNU, FileHeader64, NT_GNU_BUILD_ID, PF_X, PT_LOAD, ProgramHeader64};
use object::read::elf::{FileHeader, ProgramHeader};

use super::data::Image;

/// Bytes at a mapping's beginning that are searched for a build ID.
const HEAD_BYTES: u64 = 64 << 10;

/// Mapped code.
#[derive(Debug, Default)]
pub struct Mapping {
    pub range: Range<u64>,
    pub offset: u64,
    pub inode: u64,
    pub path: String,
    pub is_deleted: bool,
    pub is_executable: bool,
    /// What the file's image in memory says.
    pub head: Head,
    /// The mapped file, opened while the process lived.
    pub file: Option<File>,
}

/// The facts at the beginning of an ELF file, or of its image in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Head {
    pub build_id: Option<Vec<u8>>,
    pub segments: Vec<Segment>,
    /// Where code begins, as it was linked: of use in debug files, whose segments are empty.
    pub code_address: Option<u64>,
}

/// The place of a part of an ELF file, as it was linked.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    pub offset: u64,
    pub bytes: u64,
    pub address: u64,
}

impl Head {
    /// The address, as it was linked, of a byte of the file.
    pub fn linked_address(&self, offset: u64) -> Option<u64> {
        let segment = self.segments.iter().find(|segment| {
            offset.checked_sub(segment.offset).is_some_and(|into| into < segment.bytes)
        })?;
        (offset - segment.offset).checked_add(segment.address)
    }
}

impl Mapping {
    pub fn is_file(&self) -> bool {
        self.path.starts_with('/')
    }

    /// What a profile says about it before functions are looked for.
    pub fn image(&self) -> Image {
        Image {
            start: self.range.start,
            end: self.range.end,
            offset: self.offset,
            path: self.path.clone(),
            build_id: self.head.build_id.as_deref().map(hexadecimal).unwrap_or_default(),
            ..Image::default()
        }
    }
}

/// The index of the mapping that has this address, among mappings in the order of addresses.
pub fn find(mappings: &[Mapping], address: u64) -> Option<usize> {
    let after = mappings.partition_point(|mapping| mapping.range.start <= address);
    after.checked_sub(1).filter(|&index| mappings[index].range.contains(&address))
}

/// Parses the lines of /proc/PID/maps: `start-end permissions offset device inode path`. Leaves
/// out what is none.
pub fn parse(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(line).collect()
}

fn line(text: &str) -> Option<Mapping> {
    let hexadecimal = |digits| u64::from_str_radix(digits, 16).ok();
    let (start, rest) = text.trim_start().split_once('-')?;
    let (end, rest) = rest.split_once(' ')?;
    let range = hexadecimal(start)?..hexadecimal(end)?;
    let mut fields = rest.splitn(5, ' ');
    let permissions = fields.next().filter(|field| field.len() == 4)?;
    let offset = hexadecimal(fields.next()?)?;
    let inode = fields.nth(1)?.parse().ok()?;
    let name = fields.next().unwrap_or("").trim();
    let path = name.strip_suffix(" (deleted)").unwrap_or(name);
    (range.start < range.end).then(|| Mapping {
        range,
        offset,
        inode,
        path: path.into(),
        is_deleted: path.len() < name.len(),
        is_executable: permissions.as_bytes()[2] == b'x',
        ..Mapping::default()
    })
}

/// The mapped code of a process. `read` reads its memory.
pub fn of_process(pid: i32, read: impl Fn(u64, &mut [u8]) -> bool) -> Vec<Mapping> {
    let text = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let mut all = parse(&String::from_utf8_lossy(&text));
    let heads: Vec<(u64, String, Head)> = all
        .iter()
        .filter(|mapping| mapping.offset == 0 && mapping.is_file())
        .map(|mapping| {
            let length = HEAD_BYTES.min(mapping.range.end - mapping.range.start);
            let mut head = vec![0; length as usize];
            let is_read = read(mapping.range.start, &mut head);
            let head = if is_read { Head::parse(&head) } else { None };
            (mapping.inode, mapping.path.clone(), head.unwrap_or_default())
        })
        .collect();
    all.retain(|mapping| mapping.is_executable);
    for mapping in all.iter_mut().filter(|mapping| mapping.is_file()) {
        let same = heads.iter().find(|head| head.0 == mapping.inode && head.1 == mapping.path);
        mapping.head = same.map(|head| head.2.clone()).unwrap_or_default();
        mapping.file = open(pid, mapping);
    }
    all
}

/// Opens the file that is mapped: by its mapping, which needs privileges; else by its path, as the
/// process sees it, if it is still the same file.
fn open(pid: i32, mapping: &Mapping) -> Option<File> {
    let Range { start, end } = mapping.range;
    let places = [
        format!("/proc/{pid}/map_files/{start:x}-{end:x}"),
        format!("/proc/{pid}/root{}", mapping.path),
        format!("/proc/{pid}/exe"),
    ];
    places.iter().find_map(|place| {
        let same =
            fs::metadata(place).is_ok_and(|meta| meta.is_file() && meta.ino() == mapping.inode);
        same.then(|| File::open(place).ok()).flatten()
    })
}

impl Head {
    /// Parses the first bytes of a file; `None` if it is not ELF.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let header = FileHeader64::<Endianness>::parse(bytes).ok()?;
        let endian = header.endian().ok()?;
        let parts = header.program_headers(endian, bytes).ok()?;
        let loaded = parts.iter().filter(|part| part.p_type(endian) == PT_LOAD);
        let segments = loaded.clone().map(|part| Segment {
            offset: part.p_offset(endian),
            bytes: part.p_filesz(endian),
            address: part.p_vaddr(endian),
        });
        let build_id = parts.iter().find_map(|part| build_id(part, endian, bytes));
        let code = loaded.clone().find(|part| part.p_flags(endian).contains(PF_X));
        let code_address = code.map(|part| part.p_vaddr(endian) & !0xfff);
        Some(Self { build_id, segments: segments.collect(), code_address })
    }

    /// Reads the beginning of a file.
    pub fn of_file(file: &File) -> Option<Self> {
        let mut bytes = Vec::new();
        let mut file = file;
        file.seek(SeekFrom::Start(0)).ok()?;
        file.take(HEAD_BYTES).read_to_end(&mut bytes).ok()?;
        Self::parse(&bytes)
    }
}

fn build_id(
    part: &ProgramHeader64<Endianness>,
    endian: Endianness,
    bytes: &[u8],
) -> Option<Vec<u8>> {
    let mut notes = part.notes(endian, bytes).ok().flatten()?;
    while let Ok(Some(note)) = notes.next() {
        if note.name() == ELF_NOTE_GNU
            && note.n_type(endian) == NT_GNU_BUILD_ID
            && !note.desc().is_empty()
        {
            return Some(note.desc().to_vec());
        }
    }
    None
}

/// Bytes as hexadecimal digits.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn lines_of_maps() {
        let text = "\
55b0bd532000-55b0bd534000 r-xp 00001000 fe:00 247026                     /usr/bin/a program
7f0003000000-7f0003100000 rw-s 00000000 00:01 5                          /memfd:x (deleted)
7f0004000000-7f0004100000 r-xp 00000000 00:00 0
no-mapping r-xp 0 0 0
";
        let all = parse(text);
        assert_eq!(all.len(), 3);
        assert_eq!((all[0].path.as_str(), all[0].offset), ("/usr/bin/a program", 0x1000));
        assert!(all[0].is_executable && all[0].is_file() && !all[0].is_deleted);
        assert!(all[1].is_deleted && !all[1].is_executable);
        assert!(!all[2].is_file() && all[2].is_executable);
    }

    #[test]
    fn sees_this_test() {
        let memory = File::open("/proc/self/mem").unwrap();
        let all = of_process(std::process::id() as i32, |address, bytes| {
            memory.read_exact_at(bytes, address).is_ok()
        });
        let exe = std::env::current_exe().unwrap();
        let own = all.iter().find(|mapping| exe.to_str() == Some(&mapping.path)).unwrap();
        let file = own.file.as_ref().unwrap();
        assert_eq!(file.metadata().unwrap().ino(), own.inode);
        let head = Head::of_file(file).unwrap();
        assert_eq!(head, own.head);
        let function = sees_this_test as fn() as usize as u64;
        let offset = function - own.range.start + own.offset;
        assert!(own.range.contains(&function) && head.linked_address(offset).is_some());
        assert!(all.iter().any(|mapping| mapping.path.contains("libc") && {
            mapping.head.build_id.as_ref().is_some_and(|id| id.len() >= 8)
        }));
    }
}
