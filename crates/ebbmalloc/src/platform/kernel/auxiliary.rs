//! Reads the auxiliary vector, which the kernel hands a process at its start (`getauxval(3)`).
//!
//! Reads it from /proc where it can, since another library may have replaced the C library's
//! function.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::proc::read_file;
use crate::platform::errno::keeping_errno;

/// Keys at or above this number are ignored.
const KEYS: usize = 64;

static VALUES: [AtomicUsize; KEYS] = [const { AtomicUsize::new(0) }; KEYS];
static IS_READ: AtomicBool = AtomicBool::new(false);

/// The value of this key; 0 if the kernel gave none.
pub(crate) fn value(key: libc::c_ulong) -> usize {
    if !IS_READ.load(Ordering::Acquire) {
        read();
    }
    VALUES[key as usize].load(Ordering::Relaxed)
}

/// Fills [`VALUES`]. Threads may do so at the same time: they store equal values.
#[cold]
fn read() {
    let mut bytes = [0; KEYS * 2 * size_of::<usize>()];
    let (words, _) = read_file(c"/proc/self/auxv", &mut bytes).as_chunks();
    for [key, value] in words.as_chunks().0 {
        if let Some(slot) = VALUES.get(usize::from_ne_bytes(*key)) {
            slot.store(usize::from_ne_bytes(*value), Ordering::Relaxed);
        }
    }
    if words.is_empty() {
        // There is no /proc, or the process may not read it.
        keeping_errno(|| {
            for (key, slot) in VALUES.iter().enumerate() {
                // SAFETY: getauxval(3) takes any key, and touches none of our memory.
                slot.store(unsafe { libc::getauxval(key as _) } as usize, Ordering::Relaxed);
            }
        });
    }
    IS_READ.store(true, Ordering::Release);
}

/// Bytes in an OS page. Never 0, so callers may divide by it.
pub(crate) fn page_size() -> usize {
    const MIN: usize = 4096;
    if cfg!(target_arch = "x86_64") { MIN } else { value(libc::AT_PAGESZ).max(MIN) }
}

/// The address at which the program was loaded. Its headers lie in its first page.
pub(crate) fn program_start() -> usize {
    value(libc::AT_PHDR) & !4095
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_c_library() {
        // The C library changes others, for example the features of the processor.
        let keys = [libc::AT_PAGESZ, libc::AT_BASE, libc::AT_RANDOM, libc::AT_SYSINFO_EHDR, 27, 28];
        for key in keys {
            // SAFETY: getauxval(3) takes any key.
            assert_eq!(value(key), unsafe { libc::getauxval(key) } as usize, "{key}");
        }
        assert!(value(libc::AT_PAGESZ) >= 4096);
    }
}
