//! Finds the functions at addresses of one mapped file.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use addr2line::{Loader, demangle_auto};

use super::data::Function;
use super::debug_files;
use super::maps::{Head, Mapping};

/// A mapped file with its symbols.
pub struct Symbols {
    head: Head,
    /// The build ID of the file that is mapped.
    pub build_id: Option<Vec<u8>>,
    /// The file with debug information, and the file itself.
    loaders: Vec<Loader>,
    /// Why the file could not be used.
    pub trouble: Option<&'static str>,
}

impl Symbols {
    /// Opens the symbols of a mapping's file. `folders` are searched for debug files.
    pub fn open(mapping: &Mapping, folders: &[PathBuf]) -> Self {
        let path = Path::new(&mapping.path);
        let by_path = || match !mapping.is_deleted && path.is_file() {
            true => File::open(path).ok(),
            false => None,
        };
        let kept = mapping.file.as_ref().and_then(|file| file.try_clone().ok());
        let mut file = kept.or_else(by_path);
        let own_head = file.as_ref().and_then(Head::of_file);
        let build_id = mapping.head.build_id.clone();
        let mut trouble = None;
        let is_other = match (&build_id, own_head.as_ref().and_then(|head| head.build_id.as_ref()))
        {
            (Some(mapped), Some(own)) => mapped != own,
            _ => false,
        };
        if is_other || mapping.is_deleted && file.is_none() {
            trouble = Some("was replaced or deleted since it was mapped");
            file = None;
        } else if file.is_none() {
            trouble = Some("cannot be read");
        }
        let own_head = own_head.filter(|_| file.is_some()).unwrap_or_default();
        let build_id = build_id.or(own_head.build_id.clone());
        let mut head = match mapping.head.segments.is_empty() {
            true => own_head,
            false => mapping.head.clone(),
        };
        let descriptor = file.as_ref().map(|file| format!("/proc/self/fd/{}", file.as_raw_fd()));
        let own = descriptor.and_then(|path| Loader::new(path).ok());
        let mut loaders = Vec::new();
        let mut has_lines = own.as_ref().is_some_and(has_debug_information);
        if !has_lines {
            let candidates = debug_files::candidates(folders, path, build_id.as_deref());
            for path in
                candidates.iter().filter(|path| debug_files::fits(path, build_id.as_deref()))
            {
                let Ok(loader) = Loader::new_with_sup(path, debug_files::shared_debug_file(path))
                else {
                    continue;
                };
                has_lines = has_debug_information(&loader);
                loaders.push(loader);
                if head.segments.is_empty() {
                    let file = File::open(path).ok();
                    head = file.as_ref().and_then(Head::of_file).unwrap_or_default();
                }
                if has_lines {
                    break;
                }
            }
        }
        // With a separate file, the own one still has the names of exported functions.
        loaders.extend(own);
        if !loaders.is_empty() && trouble.is_some() {
            trouble = None;
        }
        Self { head, build_id, loaders, trouble }
    }

    /// The address, as it was linked, of an address in a mapping.
    pub fn linked_address(&self, mapping: &Mapping, address: u64) -> u64 {
        let offset = (address - mapping.range.start).wrapping_add(mapping.offset);
        let by_code = || Some(self.head.code_address? + (address - mapping.range.start));
        self.head.linked_address(offset).or_else(by_code).unwrap_or(offset)
    }

    /// The functions and lines at an address as it was linked, the innermost inlined function
    /// first. Empty without symbols.
    pub fn find(&self, address: u64) -> Vec<(Function, u32)> {
        let lines = self.loaders.iter().map(|loader| lines(loader, address));
        lines.into_iter().find(|lines| !lines.is_empty()).unwrap_or_default()
    }
}

fn has_debug_information(loader: &Loader) -> bool {
    let has = |name: &[u8]| loader.get_section_range(name).is_some();
    has(b".debug_info") || has(b".zdebug_info")
}

fn lines(loader: &Loader, address: u64) -> Vec<(Function, u32)> {
    let symbol = || {
        let raw = loader.find_symbol(address).filter(|name| !name.is_empty())?;
        Some((demangle_auto(raw.into(), None).into_owned(), raw.to_owned()))
    };
    let mut found = Vec::new();
    if let Ok(mut frames) = loader.find_frames(address) {
        while let Ok(Some(frame)) = frames.next() {
            let location = frame.location.as_ref();
            let file = location.and_then(|location| location.file).unwrap_or_default();
            let line = location.and_then(|location| location.line).unwrap_or(0);
            let function = frame.function.as_ref().and_then(|function| {
                let raw = function.raw_name().ok()?.into_owned();
                Some((function.demangle().ok()?.into_owned(), raw))
            });
            // Assembly has lines without functions.
            if let Some((name, system_name)) = function.or_else(symbol) {
                found.push((Function { name, system_name, file: file.into() }, line));
            }
        }
    }
    if found.is_empty()
        && let Some((name, system_name)) = symbol()
    {
        found.push((Function { name, system_name, file: String::new() }, 0));
    }
    found
}
