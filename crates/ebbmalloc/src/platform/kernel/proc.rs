//! Reads /proc and /sys, without allocating and without the C library.

use core::ffi::CStr;

use super::file;
use super::syscall::call;

/// Reads the start of a file into `buffer`. Returns the part that was read; empty on an error.
pub(crate) fn read_file<'a>(path: &CStr, buffer: &'a mut [u8]) -> &'a [u8] {
    let Some(file) = file::open(path) else { return &buffer[..0] };
    let n = file::read(file, buffer);
    file::close(file);
    &buffer[..n]
}

/// Copies a variable of the environment that the process was started with into `buffer`, cut to
/// fit. Returns its length there. Reads /proc/self/environ, for when the C library has not started
/// yet.
#[cold]
pub(crate) fn initial_environment(name: &[u8], buffer: &mut [u8]) -> Option<usize> {
    let mut chunk = [0; 512];
    // Bytes of the current entry that match "NAME="; `None` after a mismatch.
    let mut matched = Some(0);
    let mut length = 0;
    {
        let file = file::open(c"/proc/self/environ")?;
        let mut found = None;
        'file: loop {
            let n = file::read(file, &mut chunk);
            if n == 0 {
                break;
            }
            for &byte in &chunk[..n] {
                matched = match matched {
                    Some(at) if at > name.len() => {
                        if byte == 0 {
                            found = Some(length);
                            break 'file;
                        }
                        if length < buffer.len() {
                            buffer[length] = byte;
                            length += 1;
                        }
                        matched
                    }
                    _ if byte == 0 => Some(0),
                    Some(at) if byte == *name.get(at).unwrap_or(&b'=') => Some(at + 1),
                    _ => None,
                };
            }
        }
        file::close(file);
        found
    }
}

/// The unsigned decimal numbers in a text, in order.
pub(crate) fn numbers(text: &[u8]) -> impl Iterator<Item = usize> {
    text.split(|byte| !byte.is_ascii_digit()).filter(|digits| !digits.is_empty()).map(|digits| {
        digits.iter().fold(0usize, |value, digit| {
            value.saturating_mul(10).saturating_add((digit - b'0') as usize)
        })
    })
}

/// The highest CPU in a list such as "0-3,8-11".
pub(crate) fn highest_number(list: &[u8]) -> Option<usize> {
    numbers(list).max()
}

/// Field `index` of /proc/self/statm, in pages: 0 is mapped memory, 1 resident memory.
pub(crate) fn status_pages(index: usize) -> usize {
    let mut text = [0; 128];
    numbers(read_file(c"/proc/self/statm", &mut text)).nth(index).unwrap_or(0)
}

/// The unit of times in /proc (`USER_HZ`), on all 64-bit machines that the engine runs on.
const TICKS_PER_SECOND: u64 = 100;

/// The start of this process in microseconds since boot: field 22 of proc_pid_stat(5), in ticks.
/// Fields are counted from behind the name in field 2, which may contain anything.
pub(crate) fn start_us() -> Option<u64> {
    let mut text = [0; 1024];
    let text = read_file(c"/proc/self/stat", &mut text);
    let after_name = text.iter().rposition(|&byte| byte == b')')?;
    let field = text[after_name..].split(|&byte| byte == b' ').nth(20)?;
    Some(numbers(field).next()? as u64 * (1_000_000 / TICKS_PER_SECOND))
}

/// The highest CPU that this thread may run on, plus one.
pub(crate) fn affinity_cpus() -> usize {
    let mut mask = [0u64; 128];
    // SAFETY: the kernel fills at most the size of `mask`.
    let filled =
        unsafe { call!(libc::SYS_sched_getaffinity, 0, size_of_val(&mask), mask.as_mut_ptr()) };
    if filled.is_err() {
        return 1;
    }
    let last = mask.iter().rposition(|&word| word != 0).unwrap_or(0);
    last * 64 + (64 - mask[last].leading_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_and_their_absence() {
        assert_eq!(highest_number(b"0-1\n"), Some(1));
        assert_eq!(highest_number(b"0,3,8-63\n"), Some(63));
        assert_eq!(highest_number(b"garbage"), None);
    }

    #[test]
    fn the_environment_before_the_c_library_knows_it() {
        let mut early = [0; 2];
        assert_eq!(initial_environment(b"PATH", &mut early), Some(2));
        assert_eq!(std::env::var("PATH").unwrap().as_bytes()[..2], early);
        assert_eq!(initial_environment(b"PAT", &mut early), None);
    }
}
