//! Writes the file system that a kernel starts with: an archive in the format `newc` (the kernel's
//! `Documentation/driver-api/early-userspace/buffer-format.rst`).

use anyhow::{Context as _, Result};
use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::fs;
use std::os::unix::fs::DirEntryExt;
use std::path::Path;

const DIRECTORY: u32 = 0o040_755;
const EXECUTABLE: u32 = 0o100_755;
const LINK: u32 = 0o120_777;
const CHARACTER_DEVICE: u32 = 0o020_600;

#[derive(Default)]
pub struct Initramfs {
    bytes: Vec<u8>,
    entries: u32,
    directories: BTreeSet<String>,
    /// Paths of the files of `tree`, by their inodes.
    shared: BTreeMap<u64, String>,
}

impl Initramfs {
    /// Makes an archive with the console, without which the first process cannot print.
    pub fn new() -> Self {
        let mut archive = Self::default();
        archive.directories_of("dev/console");
        archive.entry("dev/console", CHARACTER_DEVICE, (5, 1), &[]);
        archive
    }

    /// Adds an executable file at a path without the leading slash.
    pub fn add(&mut self, path: &str, contents: &[u8]) {
        self.directories_of(path);
        self.entry(path, EXECUTABLE, (0, 0), contents);
    }

    /// Adds a copy of `source`.
    pub fn copy(&mut self, path: &str, source: &Path) -> Result<()> {
        let contents =
            fs::read(source).with_context(|| format!("cannot read {}", source.display()))?;
        self.add(path, &contents);
        Ok(())
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &str, to: &str) {
        self.directories_of(path);
        self.entry(path, LINK, (0, 0), to.as_bytes());
    }

    /// Adds all that is below the directory `path` of `root`. Further names of a file become links.
    pub fn tree(&mut self, root: &Path, path: &str) -> Result<()> {
        for entry in fs::read_dir(root.join(path)).with_context(|| format!("cannot read {path}"))? {
            let entry = entry?;
            let below = format!("{path}/{}", entry.file_name().display());
            match entry.file_type()? {
                kind if kind.is_dir() => self.tree(root, &below)?,
                kind if kind.is_symlink() => {
                    self.link(&below, &fs::read_link(entry.path())?.display().to_string());
                }
                _ => match self.shared.entry(entry.ino()) {
                    Entry::Occupied(first) => {
                        let to = format!("/{}", first.get());
                        self.link(&below, &to);
                    }
                    Entry::Vacant(file) => {
                        file.insert(below.clone());
                        self.copy(&below, &entry.path())?;
                    }
                },
            }
        }
        Ok(())
    }

    /// Returns the whole archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn directories_of(&mut self, path: &str) {
        for (end, _) in path.match_indices('/') {
            if self.directories.insert(path[..end].to_string()) {
                self.entry(&path[..end], DIRECTORY, (0, 0), &[]);
            }
        }
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), contents: &[u8]) {
        self.entries += 1;
        let (major, minor) = device;
        let fields = [
            self.entries, // inode
            mode,
            0, // user
            0, // group
            1, // links
            0, // time
            contents.len() as u32,
            0, // the device that the file lies on
            0,
            major,
            minor,
            path.len() as u32 + 1,
            0, // check sum
        ];
        self.bytes.extend_from_slice(b"070701");
        fields.iter().for_each(|field| self.bytes.extend(format!("{field:08x}").bytes()));
        self.bytes.extend(path.bytes().chain([0]));
        self.pad();
        self.bytes.extend_from_slice(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_after_their_directories() {
        let mut archive = Initramfs::new();
        archive.add("a/b/c", b"12345");
        archive.add("a/b/d", b"");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        let places: Vec<_> =
            ["dev\0", "dev/console\0", "a\0", "a/b\0", "a/b/c\0", "a/b/d\0", "TRAILER!!!\0"]
                .iter()
                .map(|name| text.find(name).unwrap())
                .collect();
        assert!(places.is_sorted(), "{places:?}");
        assert_eq!(text.matches("a/b\0").count(), 1);
        // Header and name of 110 + 6 bytes end at a multiple of four.
        assert!(text.contains(concat!("a/b/c\0", "12345\0\0\0", "070701")));
    }
}
