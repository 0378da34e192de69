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

/// Passes each variable of the environment that the process was started with to `work`, if its name
/// begins with `prefix`: without the prefix, cut to 500 bytes. Reads /proc/self/environ, for when
/// the C library has not started yet.
#[cold]
pub(crate) fn for_each_initial_variable(prefix: &[u8], work: &mut dyn FnMut(&[u8])) {
    let (mut chunk, mut entry, mut length) = ([0; 512], [0; 512], 0);
    let Some(file) = file::open(c"/proc/self/environ") else { return };
    loop {
        let n = file::read(file, &mut chunk);
        for &byte in &chunk[..n] {
            if byte != 0 {
                if let Some(end) = entry.get_mut(length) {
                    *end = byte;
                    length += 1;
                }
                continue;
            }
            if let Some(rest) = entry[..length].strip_prefix(prefix) {
                work(rest);
            }
            length = 0;
        }
        if n == 0 {
            break;
        }
    }
    file::close(file);
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

/// The high-water mark of resident memory, in KiB. Unlike getrusage(2)'s it is that of this
/// program, and not also of the one that started it by execve(2).
pub(crate) fn peak_resident_kib() -> Option<usize> {
    const NAME: &[u8] = b"\nVmHWM:";
    let mut text = [0; 2048];
    let text = read_file(c"/proc/self/status", &mut text);
    let at = text.windows(NAME.len()).position(|window| window == NAME)?;
    numbers(&text[at + NAME.len()..]).next()
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
        let mut found = std::vec::Vec::new();
        for_each_initial_variable(b"PAT", &mut |rest| found.push(rest.to_vec()));
        let path = std::env::var("PATH").unwrap();
        let path = std::format!("H={}", &path[..path.len().min(400)]);
        assert!(found.iter().any(|rest| rest.starts_with(path.as_bytes())), "{found:?}");
        assert!(found.iter().all(|rest| rest.len() <= 512 - 3));
    }
}
