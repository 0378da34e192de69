//! Linux, through libc. Nothing here needs the C library to be initialised: the first block may
//! be asked for by the dynamic loader, before any constructor has run.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicI32, Ordering};

use super::rseq_area::registered_by_libc;
use super::{Os, RseqArea, Usage};

/// The platform that programs run on.
#[derive(Clone, Copy, Default, Debug)]
pub struct Linux;

/// Bytes of the kernel's rseq area that must be there for `mm_cid` (offset 24, Linux 6.3).
const RSEQ_SIZE_WITH_MM_CID: usize = 28;
/// getauxval(3) key: the size of the rseq features that the kernel fills.
const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;

/// Where messages go: standard error, or a duplicate of it, since many programs close theirs
/// before the statistics are printed.
static MESSAGES: AtomicI32 = AtomicI32::new(libc::STDERR_FILENO);

/// Runs `call` and puts `errno` back: an allocator's own system calls are nobody's business.
pub(crate) fn keeping_errno<R>(call: impl FnOnce() -> R) -> R {
    // SAFETY: the address of this thread's errno is valid while the thread lives.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let result = call();
        *errno = saved;
        result
    }
}

impl Os for Linux {
    fn page_size(&self) -> usize {
        // SAFETY: reads a number.
        unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
    }

    fn address_space_left(&self) -> usize {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: fills the struct that it is given.
        let known = unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) } == 0;
        if !known || limit.rlim_cur == libc::RLIM_INFINITY {
            return usize::MAX;
        }
        let used = status_pages(0) * self.page_size();
        (limit.rlim_cur as usize).saturating_sub(used)
    }

    fn reserve(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let padded = bytes.checked_add(align)?;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let start = keeping_errno(|| unsafe {
            libc::mmap(
                ptr::null_mut(),
                padded,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        });
        if start == libc::MAP_FAILED {
            return None;
        }
        let start = start.cast::<u8>();
        let before = start.align_offset(align);
        // SAFETY: both ends lie in the mapping just made and nobody knows them.
        unsafe {
            let aligned = start.add(before);
            if before > 0 {
                libc::munmap(start.cast(), before);
            }
            if align > before {
                libc::munmap(aligned.add(bytes).cast(), align - before);
            }
            NonNull::new(aligned)
        }
    }

    unsafe fn commit(&self, start: *mut u8, bytes: usize) -> bool {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the caller's: the range is ours.
        keeping_errno(|| unsafe { libc::mprotect(start.cast(), bytes, access) == 0 })
    }

    unsafe fn purge(&self, start: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller's: the range is ours and its contents are dead.
        keeping_errno(|| unsafe { libc::madvise(start.cast(), bytes, libc::MADV_DONTNEED) == 0 })
    }

    fn cpus(&self) -> usize {
        // Not sysconf: glibc's reads a directory there, for which it allocates.
        let mut text = [0; 256];
        let possible = read_file(c"/sys/devices/system/cpu/possible", &mut text);
        highest_number(possible).map_or_else(affinity_cpus, |last| last + 1).max(1)
    }

    fn rseq(&self) -> Result<RseqArea, &'static str> {
        let (offset, size) = registered_by_libc()?;
        if size == 0 {
            return Err("the C library did not register rseq");
        }
        // SAFETY: reads a number from the auxiliary vector.
        let features = unsafe { libc::getauxval(AT_RSEQ_FEATURE_SIZE) } as usize;
        if features >= RSEQ_SIZE_WITH_MM_CID {
            Ok(RseqArea { offset, id_at: offset + 24, id: "mm_cid" })
        } else {
            Ok(RseqArea { offset, id_at: offset + 4, id: "cpu_id" })
        }
    }

    fn thread_key(&self) -> usize {
        // SAFETY: reads the thread pointer. Descriptors lie at least a page apart.
        unsafe { libc::pthread_self() as usize >> 12 }
    }

    fn now_ms(&self) -> u64 {
        let now = clock(libc::CLOCK_MONOTONIC_COARSE);
        now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
    }

    fn environment(&self, name: &str, buffer: &mut [u8]) -> Option<usize> {
        unsafe extern "C" {
            static environ: *const *const c_char;
        }
        // SAFETY: `environ` is null before the C library has started, else a list of C strings.
        unsafe {
            if environ.is_null() {
                return initial_environment(name.as_bytes(), buffer);
            }
            let mut entry = environ;
            while !(*entry).is_null() {
                let text = CStr::from_ptr(*entry).to_bytes();
                if let Some(value) = text.strip_prefix(name.as_bytes())
                    && let Some((b'=', value)) = value.split_first()
                {
                    let length = value.len().min(buffer.len());
                    buffer[..length].copy_from_slice(&value[..length]);
                    return Some(length);
                }
                entry = entry.add(1);
            }
        }
        None
    }

    fn print(&self, mut text: &[u8]) {
        let messages = MESSAGES.load(Ordering::Relaxed);
        keeping_errno(|| {
            while !text.is_empty() {
                // SAFETY: the buffer is as long as said.
                let n = unsafe { libc::write(messages, text.as_ptr().cast(), text.len()) };
                let Ok(written @ 1..) = usize::try_from(n) else {
                    break;
                };
                text = &text[written..];
            }
        });
    }

    fn out_of_memory(&self) {
        // SAFETY: the address of this thread's errno is valid while the thread lives.
        unsafe { *libc::__errno_location() = libc::ENOMEM }
    }

    fn abort(&self) -> ! {
        // SAFETY: has no preconditions.
        unsafe { libc::abort() }
    }

    fn at_fork(&self, before: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
        type Hook = Option<unsafe extern "C" fn()>;
        unsafe extern "C" {
            // The libc crate has it for some targets only; pthread_atfork(3).
            fn pthread_atfork(before: Hook, parent: Hook, child: Hook) -> c_int;
        }
        // SAFETY: the functions live as long as the program (the library is never unloaded).
        keeping_errno(|| unsafe { pthread_atfork(Some(before), Some(parent), Some(child)) });
    }

    fn at_exit(&self, call: extern "C" fn()) {
        keeping_errno(|| {
            // Out of the way of programs that expect low numbers.
            // SAFETY: plain system call; the function lives as long as the program.
            unsafe {
                let copy = libc::fcntl(libc::STDERR_FILENO, libc::F_DUPFD_CLOEXEC, 200);
                if copy >= 0 {
                    MESSAGES.store(copy, Ordering::Relaxed);
                }
                libc::atexit(call);
            }
        });
    }

    fn usage(&self) -> Usage {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: fills the struct that it is given; all zero bytes are valid.
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
            usage.assume_init()
        };
        let now = clock(libc::CLOCK_BOOTTIME);
        let micros = |t: libc::timeval| t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64;
        let now_us = now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000;
        Usage {
            elapsed_us: now_us.saturating_sub(start_us().unwrap_or(now_us)),
            user_us: micros(usage.ru_utime),
            system_us: micros(usage.ru_stime),
            minor_faults: usage.ru_minflt as u64,
            major_faults: usage.ru_majflt as u64,
            resident: (status_pages(1) * self.page_size()) as u64,
            peak_resident: usage.ru_maxrss as u64 * 1024,
        }
    }
}

/// The time on one of the kernel's clocks.
fn clock(id: libc::clockid_t) -> libc::timespec {
    let mut now = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: fills the struct that it is given; all zero bytes are valid.
    unsafe {
        libc::clock_gettime(id, now.as_mut_ptr());
        now.assume_init()
    }
}

/// Reads the start of a file; what could be read, empty if nothing.
fn read_file<'a>(path: &CStr, buffer: &'a mut [u8]) -> &'a [u8] {
    keeping_errno(|| {
        // SAFETY: plain system calls on a descriptor of our own and a buffer as long as said.
        unsafe {
            let file = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
            if file < 0 {
                return &buffer[..0];
            }
            let n = libc::read(file, buffer.as_mut_ptr().cast::<c_void>(), buffer.len());
            libc::close(file);
            &buffer[..n.max(0) as usize]
        }
    })
}

/// A variable of the environment that the process was started with, where the C library does not
/// know it yet: /proc/self/environ, entries that end in a zero byte.
#[cold]
fn initial_environment(name: &[u8], buffer: &mut [u8]) -> Option<usize> {
    let mut chunk = [0; 512];
    // Bytes of the entry seen so far that agree with "NAME="; none after a disagreement.
    let mut matched = Some(0);
    let mut length = 0;
    keeping_errno(|| {
        // SAFETY: plain system calls on a descriptor of our own and a buffer as long as said.
        let file =
            unsafe { libc::open(c"/proc/self/environ".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        if file < 0 {
            return None;
        }
        let mut found = None;
        'file: loop {
            // SAFETY: as above.
            let n = unsafe { libc::read(file, chunk.as_mut_ptr().cast::<c_void>(), chunk.len()) };
            let Ok(n @ 1..) = usize::try_from(n) else { break };
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
        // SAFETY: our own descriptor.
        unsafe { libc::close(file) };
        found
    })
}

/// The unsigned decimal numbers in a text, in order.
fn numbers(text: &[u8]) -> impl Iterator<Item = usize> {
    text.split(|byte| !byte.is_ascii_digit()).filter(|digits| !digits.is_empty()).map(|digits| {
        digits.iter().fold(0usize, |value, digit| {
            value.saturating_mul(10).saturating_add((digit - b'0') as usize)
        })
    })
}

/// The last CPU in a list such as "0-3,8-11".
fn highest_number(list: &[u8]) -> Option<usize> {
    numbers(list).max()
}

/// Field `index` of /proc/self/statm: 0 is the address space in use, 1 what is resident, in pages.
fn status_pages(index: usize) -> usize {
    let mut text = [0; 128];
    numbers(read_file(c"/proc/self/statm", &mut text)).nth(index).unwrap_or(0)
}

/// When this process started, in microseconds since boot: field 22 of proc_pid_stat(5), which
/// counts in ticks. The name in field 2 may contain anything, so counting starts behind it.
fn start_us() -> Option<u64> {
    let mut text = [0; 1024];
    let text = read_file(c"/proc/self/stat", &mut text);
    let after_name = text.iter().rposition(|&byte| byte == b')')?;
    let field = text[after_name..].split(|&byte| byte == b' ').nth(20)?;
    // SAFETY: reads a number.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as u64;
    Some(numbers(field).next()? as u64 * (1_000_000 / ticks_per_second.max(1)))
}

/// How many CPUs this thread may run on, counted up to the last of them.
fn affinity_cpus() -> usize {
    let mut mask = [0u64; 128];
    // SAFETY: the kernel fills at most as many bytes as said.
    let filled = keeping_errno(|| unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&mask), mask.as_mut_ptr())
    });
    if filled <= 0 {
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
        assert!(Linux.cpus() >= 1 && affinity_cpus() >= 1);
    }

    #[test]
    fn reserved_memory_is_aligned_zero_and_purgeable() {
        let page = Linux.page_size();
        let start = Linux.reserve(16 * page, 1 << 21).unwrap().as_ptr();
        assert_eq!(start.addr() % (1 << 21), 0);
        // SAFETY: the range was just reserved.
        unsafe {
            assert!(Linux.commit(start, page));
            assert_eq!(start.read(), 0);
            start.write(7);
            assert!(Linux.purge(start, page));
            assert_eq!(start.read(), 0);
        }
        assert!(Linux.reserve(usize::MAX / 2, 1 << 16).is_none());
    }

    #[test]
    fn usage_moves() {
        let usage = Linux.usage();
        assert!(usage.resident > 0 && usage.peak_resident > 0 && usage.elapsed_us > 0);
    }

    #[test]
    fn environment_is_read_and_cut() {
        let mut buffer = [0; 2];
        assert_eq!(Linux.environment("EBB_SURELY_NOT_SET", &mut buffer), None);
        assert_eq!(Linux.environment("PATH", &mut buffer), Some(2));
        let mut early = [0; 2];
        assert_eq!(initial_environment(b"PATH", &mut early), Some(2));
        assert_eq!(early, buffer);
        assert_eq!(initial_environment(b"PAT", &mut early), None);
    }
}
