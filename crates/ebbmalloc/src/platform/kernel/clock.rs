//! Reads the kernel's clocks by the code that the kernel maps into each process for this (vdso(7)).
//!
//! It is fast, and filters of system calls cannot forbid it. Nor does it matter if another library
//! has replaced `clock_gettime` by a function that allocates or lies.

use core::ffi::c_int;
use core::sync::atomic::{AtomicPtr, Ordering};
use core::{mem, ptr};

use super::auxiliary;
use super::syscall::call;

type GetTime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> c_int;

/// The kernel's function: null before the search for it, and [`NONE`] if there is none.
static GET_TIME: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
const NONE: *mut u8 = ptr::without_provenance_mut(1);

/// The time on one of the kernel's coarse clocks; 0 if the kernel refuses to tell. Of other clocks,
/// the kernel's function would read the time-stamp counter, which a program may forbid.
pub(crate) fn time(clock: libc::clockid_t) -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let mut found = GET_TIME.load(Ordering::Relaxed);
    if found.is_null() {
        found = find();
        GET_TIME.store(found, Ordering::Relaxed);
    }
    // SAFETY: `found` is the kernel's function, of this type. It fills the struct.
    unsafe {
        if found == NONE || mem::transmute::<*mut u8, GetTime>(found)(clock, &mut now) != 0 {
            now = time_by_call(clock);
        }
    }
    now
}

/// The time on any of the kernel's clocks, by a system call; 0 if the kernel refuses to tell.
#[cold]
pub(crate) fn time_by_call(clock: libc::clockid_t) -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the struct.
    let _ = unsafe { call!(libc::SYS_clock_gettime, clock, &raw mut now) };
    now
}

#[cold]
fn find() -> *mut u8 {
    let image = ptr::with_exposed_provenance::<u8>(auxiliary::value(libc::AT_SYSINFO_EHDR));
    if image.is_null() {
        return NONE;
    }
    // SAFETY: the kernel maps its image whole, for as long as the process lives.
    unsafe { function(image, &[b"__vdso_clock_gettime\0", b"__kernel_clock_gettime\0"]) }
        .map_or(NONE, <*const u8>::cast_mut)
}

/// Finds a function of one of these names in a shared object of the kernel's (elf(5)). The
/// kernel's linker script puts the string table right behind the symbols, so the distance tells
/// their number.
///
/// # Safety
/// `image` is a whole ELF image, with true headers.
unsafe fn function(image: *const u8, names: &[&[u8]]) -> Option<*const u8> {
    const DYNAMIC: u32 = 2;
    const LOAD: u32 = 1;
    const END: u64 = 0;
    const STRINGS: u64 = 5;
    const SYMBOLS: u64 = 6;
    const STRINGS_BYTES: u64 = 10;
    // SAFETY: the caller guarantees a whole image, whose headers say where everything lies.
    unsafe {
        let header = image.cast::<libc::Elf64_Ehdr>();
        let segments = image.add((*header).e_phoff as usize).cast::<libc::Elf64_Phdr>();
        let segment = |kind| {
            let mut all = (0..(*header).e_phnum as usize).map(|nth| segments.add(nth));
            all.find(|&segment| (*segment).p_type == kind)
        };
        let loaded = segment(LOAD)?;
        // Addresses in the image are relative to this base.
        let base = image.wrapping_add((*loaded).p_offset as usize);
        let base = base.wrapping_sub((*loaded).p_vaddr as usize);
        let mut entry = image.add((*segment(DYNAMIC)?).p_offset as usize).cast::<[u64; 2]>();
        let (mut strings, mut symbols, mut strings_bytes) = (0, 0, 0);
        while (*entry)[0] != END {
            let [key, value] = *entry;
            match key {
                STRINGS => strings = value,
                SYMBOLS => symbols = value,
                STRINGS_BYTES => strings_bytes = value,
                _ => {}
            }
            entry = entry.add(1);
        }
        let count = strings.checked_sub(symbols)? as usize / size_of::<libc::Elf64_Sym>();
        let symbols = base.wrapping_add(symbols as usize).cast::<libc::Elf64_Sym>();
        let strings = base.wrapping_add(strings as usize);
        for symbol in (0..count).map(|nth| symbols.add(nth)) {
            let (at, value) = ((*symbol).st_name as usize, (*symbol).st_value as usize);
            let is_named = |name: &[u8]| {
                at + name.len() <= strings_bytes as usize
                    && name.iter().enumerate().all(|(nth, &byte)| *strings.add(at + nth) == byte)
            };
            if (*symbol).st_shndx != 0 && names.iter().any(|name| is_named(name)) {
                return Some(base.wrapping_add(value));
            }
        }
        None
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_that_of_the_kernel() {
        for clock in [libc::CLOCK_MONOTONIC_COARSE, libc::CLOCK_REALTIME_COARSE] {
            let (before, mut after) = (time_by_call(clock), time(clock));
            let now = time(clock);
            // SAFETY: the call fills the struct that it is given.
            unsafe { libc::clock_gettime(clock, &mut after) };
            let close = |other: libc::timespec| (now.tv_sec - other.tv_sec).abs() < 60;
            assert!(now.tv_sec > 0 && close(before) && close(after));
        }
        // An emulator may map no image. A kernel that maps one has this function in it.
        let image = auxiliary::value(libc::AT_SYSINFO_EHDR);
        assert_eq!(image == 0, GET_TIME.load(Ordering::Relaxed) == NONE);
    }
}
