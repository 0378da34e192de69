//! What the kernel told the process at its start: the auxiliary vector (`getauxval(3)`), read without the C library, whose
//! function another library may have replaced.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::errno::keeping_errno;
use super::file;

/// Keys that are looked at are below this.
const KEYS: usize = 64;

static VALUES: [AtomicUsize; KEYS] = [const { AtomicUsize::new(0) }; KEYS];
static IS_READ: AtomicBool = AtomicBool::new(false);

/// The value that the kernel gave for this key; 0 if there is none.
pub(crate) fn value(key: libc::c_ulong) -> usize {
    if !IS_READ.load(Ordering::Acquire) {
        read();
    }
    VALUES[key as usize].load(Ordering::Relaxed)
}

/// Several threads may do this at a time: they store the same.
#[cold]
fn read() {
    let mut pairs = [[0_usize; 2]; KEYS];
    if file::read_words(c"/proc/self/auxv", pairs.as_flattened_mut()) > 0 {
        for [key, value] in pairs {
            if let Some(place) = VALUES.get(key) {
                place.store(value, Ordering::Relaxed);
            }
        }
    } else {
        // Without /proc, or where the process may not look at itself there.
        keeping_errno(|| {
            for (key, place) in VALUES.iter().enumerate() {
                // SAFETY: asks for a number.
                place.store(unsafe { libc::getauxval(key as _) } as usize, Ordering::Relaxed);
            }
        });
    }
    IS_READ.store(true, Ordering::Release);
}

/// Bytes in an OS page; never 0, so that nobody who divides by it has to ask.
pub(crate) fn page_size() -> usize {
    const ONLY: usize = 4096;
    if cfg!(target_arch = "x86_64") { ONLY } else { value(libc::AT_PAGESZ).max(ONLY) }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_c_library() {
        // Others it changes, as what the processor can do.
        let keys = [libc::AT_PAGESZ, libc::AT_BASE, libc::AT_RANDOM, libc::AT_SYSINFO_EHDR, 27, 28];
        for key in keys {
            // SAFETY: asks for a number.
            assert_eq!(value(key), unsafe { libc::getauxval(key) } as usize, "{key}");
        }
        assert!(value(libc::AT_PAGESZ) >= 4096);
    }
}
