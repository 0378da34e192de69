//! The time, from the code that the kernel maps into each process for that (vdso(7)): quick, not kept from
//! programs by filters of system calls, and the same where another library has replaced `clock_gettime` (by one
//! that allocates, or lies).

use core::ffi::c_int;
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::auxiliary;
use super::syscall::call;

type GetTime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> c_int;

/// The kernel's function: null before it was looked for, and [`NONE`] where there is none.
static GET_TIME: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
const NONE: *mut u8 = ptr::without_provenance_mut(1);

/// The time on one of the kernel's clocks; 0 where nobody tells.
pub(crate) fn time(clock: libc::clockid_t) -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let mut found = GET_TIME.load(Ordering::Relaxed);
    if found.is_null() {
        found = find();
        GET_TIME.store(found, Ordering::Relaxed);
    }
    // SAFETY: the kernel's function, which has this type and fills the struct, as the call does.
    unsafe {
        if found == NONE || mem::transmute::<*mut u8, GetTime>(found)(clock, &mut now) != 0 {
            let _ = call!(libc::SYS_clock_gettime, clock, &raw mut now);
        }
    }
    now
}

#[cold]
fn find() -> *mut u8 {
    let image = ptr::with_exposed_provenance::<u8>(auxiliary::value(libc::AT_SYSINFO_EHDR));
    if image.is_null() {
        return NONE;
    }
    // SAFETY: the kernel's image, mapped as long as the process lives.
    unsafe { function(image, &[b"__vdso_clock_gettime\0", b"__kernel_clock_gettime\0"]) }
        .map_or(NONE, <*const u8>::cast_mut)
}

/// A function of one of these names in a shared object of the kernel's (elf(5)), whose linker script puts the names of
/// symbols behind the symbols.
///
/// # Safety
/// The image lies there as a whole.
unsafe fn function(image: *const u8, names: &[&[u8]]) -> Option<*const u8> {
    const DYNAMIC: u32 = 2;
    const LOAD: u32 = 1;
    const END: u64 = 0;
    const NAMES: u64 = 5;
    const SYMBOLS: u64 = 6;
    const NAMES_BYTES: u64 = 10;
    // SAFETY: the caller's: what the image says of itself is true.
    unsafe {
        let header = image.cast::<libc::Elf64_Ehdr>();
        let segments = image.add((*header).e_phoff as usize).cast::<libc::Elf64_Phdr>();
        let segment = |kind| {
            let mut all = (0..(*header).e_phnum as usize).map(|nth| segments.add(nth));
            all.find(|&segment| (*segment).p_type == kind)
        };
        let loaded = segment(LOAD)?;
        // Addresses in the image count from here.
        let base = image.wrapping_add((*loaded).p_offset as usize);
        let base = base.wrapping_sub((*loaded).p_vaddr as usize);
        let mut entry = image.add((*segment(DYNAMIC)?).p_offset as usize).cast::<[u64; 2]>();
        let (mut all_names, mut symbols, mut names_bytes) = (0, 0, 0);
        while (*entry)[0] != END {
            let [key, value] = *entry;
            match key {
                NAMES => all_names = value,
                SYMBOLS => symbols = value,
                NAMES_BYTES => names_bytes = value,
                _ => {}
            }
            entry = entry.add(1);
        }
        let count = all_names.checked_sub(symbols)? as usize / size_of::<libc::Elf64_Sym>();
        let symbols = base.wrapping_add(symbols as usize).cast::<libc::Elf64_Sym>();
        let all_names = base.wrapping_add(all_names as usize);
        for symbol in (0..count).map(|nth| symbols.add(nth)) {
            let (at, value) = ((*symbol).st_name as usize, (*symbol).st_value as usize);
            let is = |name: &[u8]| {
                at + name.len() <= names_bytes as usize
                    && name.iter().enumerate().all(|(nth, &byte)| *all_names.add(at + nth) == byte)
            };
            if (*symbol).st_shndx != 0 && names.iter().any(|name| is(name)) {
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
        for clock in [libc::CLOCK_MONOTONIC_COARSE, libc::CLOCK_BOOTTIME] {
            let (mut before, mut after) = (time(clock), time(clock));
            let now = time(clock);
            // SAFETY: these fill a struct.
            unsafe {
                libc::clock_gettime(clock, &mut after);
                let _ = call!(libc::SYS_clock_gettime, clock, &raw mut before);
            }
            let close = |other: libc::timespec| (now.tv_sec - other.tv_sec).abs() < 60;
            assert!(now.tv_sec > 0 && close(before) && close(after));
        }
        // An emulator may have none; a kernel that has one has this function in it.
        let image = auxiliary::value(libc::AT_SYSINFO_EHDR);
        assert_eq!(image == 0, GET_TIME.load(Ordering::Relaxed) == NONE);
    }
}
