//! Finds the names of functions that a file does not export, in its symbol table for debuggers
//! (ELF's `.symtab`).
//!
//! A Rust program exports none of its functions. Reports read the table from the file, without
//! allocating.

use core::ffi::{CStr, c_int};
use core::{ptr, slice};

use crate::platform::kernel::file;
use crate::platform::kernel::syscall::call;

/// Calls `work` with the function at an address in a file: its name, and the offset in it; `None`
/// if it is unknown. `header` is the start of the file as it was loaded: if the file begins
/// differently now, it has changed, and its names are ignored.
pub(super) fn with_name<R>(
    path: &CStr,
    header: &[u8],
    offset: usize,
    work: impl FnOnce(Option<(&[u8], usize)>) -> R,
) -> R {
    let Some((start, bytes)) = map(path) else {
        return work(None);
    };
    // SAFETY: the file is mapped with `bytes` bytes. If it is truncated meanwhile, SIGBUS ends a
    // program that was about to report a mistake.
    let text = unsafe { slice::from_raw_parts(start.cast_const(), bytes) };
    let done = work(if text.starts_with(header) { find(text, offset) } else { None });
    // SAFETY: this function mapped the range, and `work` cannot have kept a name.
    let _ = unsafe { call!(libc::SYS_munmap, start, bytes) };
    done
}

/// Maps a file. Returns its address and bytes.
fn map(path: &CStr) -> Option<(*mut u8, usize)> {
    let descriptor: c_int = file::open(path)?;
    // SAFETY: this makes a new mapping, at an address of the kernel's choice.
    let mapped = unsafe {
        let bytes = call!(libc::SYS_lseek, descriptor, 0, libc::SEEK_END).unwrap_or(0);
        let (access, flags) = (libc::PROT_READ, libc::MAP_PRIVATE);
        call!(libc::SYS_mmap, 0, bytes, access, flags, descriptor, 0).map(|start| (start, bytes))
    };
    file::close(descriptor);
    mapped.ok().map(|(start, bytes)| (ptr::with_exposed_provenance_mut(start), bytes))
}

/// The number of `bytes` bytes, least significant first, at `offset` from position `base`.
fn number(text: &[u8], (base, offset): (usize, usize), bytes: usize) -> Option<usize> {
    let digits = text.get(base.checked_add(offset)?..)?.get(..bytes)?;
    Some(digits.iter().rev().fold(0, |number, &byte| number << 8 | byte as usize))
}

/// The contents of the section whose header is at position `header`.
fn section(text: &[u8], header: usize) -> Option<&[u8]> {
    let (at, bytes) = (number(text, (header, 0x18), 8)?, number(text, (header, 0x20), 8)?);
    text.get(at..)?.get(..bytes)
}

/// The function at address `offset` of an ELF file: its name, and the offset in it.
fn find(text: &[u8], offset: usize) -> Option<(&[u8], usize)> {
    const SYMBOLS: usize = 2;
    const FUNCTION: usize = 2;
    const SYMBOL_BYTES: usize = 24;
    let (headers, stride) = (number(text, (0, 0x28), 8)?, number(text, (0, 0x3a), 2)?);
    let count = number(text, (0, 0x3c), 2)?;
    let nth = |nth: usize| headers.checked_add(nth.checked_mul(stride)?);
    let symbols =
        (0..count).filter_map(nth).find(|&at| number(text, (at, 4), 4) == Some(SYMBOLS))?;
    let names = section(text, nth(number(text, (symbols, 0x28), 4)?)?)?;
    section(text, symbols)?.chunks_exact(SYMBOL_BYTES).find_map(|symbol| {
        let (start, bytes) = (number(symbol, (0, 8), 8)?, number(symbol, (0, 16), 8)?);
        let within = offset.wrapping_sub(start);
        if within >= bytes || symbol[4] as usize & 0xf != FUNCTION {
            return None;
        }
        let name = names.get(number(symbol, (0, 0), 4)?..)?;
        Some((name.split(|&byte| byte == 0).next()?, within))
    })
}

#[cfg(all(test, not(any(miri, loom))))]
mod tests {
    use std::fs;

    use super::*;

    #[inline(never)]
    fn somebody() {}

    #[test]
    fn this_test_is_found_in_its_file() {
        let file = fs::read("/proc/self/exe").unwrap();
        // SAFETY: dladdr(3) fills the struct, for which all-zero bytes are valid.
        let base = unsafe {
            let mut info: libc::Dl_info = core::mem::zeroed();
            assert_ne!(libc::dladdr((somebody as *const ()).cast(), &mut info), 0);
            info.dli_fbase.addr()
        };
        let offset = (somebody as *const ()).addr() - base;
        let found = |header: &[u8]| {
            with_name(c"/proc/self/exe", header, offset, |name| {
                name.is_some_and(|(name, within)| {
                    within == 0 && name.windows(8).any(|part| part == b"somebody")
                })
            })
        };
        assert!(found(&file[..64]));
        assert!(!found(b"another file"));
        assert!(with_name(c"/no/such/file", b"", 0, |name| name.is_none()));
    }

    #[test]
    fn garbage_has_no_names() {
        let file = fs::read("/proc/self/exe").unwrap();
        assert!(find(&[], 0).is_none());
        for length in [10, 63, 64, 100, 5000, file.len() - 1] {
            let _ = find(&file[..length], 0x1000);
        }
        let mut broken = file.clone();
        for at in 0x28..0x40 {
            broken[at] = 0xff;
            let _ = find(&broken, 0x1000);
        }
    }
}
