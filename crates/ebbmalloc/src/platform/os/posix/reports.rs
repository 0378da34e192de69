//! Reports to people: messages, files, faults and usage. Stacks and symbols are not read.

use core::ffi::{CStr, c_int};
use core::fmt::Write;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::super::hooks::Process;
use super::super::interface::{OsProcess, OsReports, Usage, Writer};
use super::super::native::NativeFor;
use super::super::{end, faults, signal};
use super::process::BEGUN_MS;
use super::system::{PEAK_UNIT_BYTES, program, thread_number};
use crate::platform::errno::{errno, keeping_errno};
use crate::platform::kernel::bytes::string;
use crate::platform::kernel::cancellation::without_cancellation;
use crate::platform::path::Path;

impl<P: Process> OsReports for NativeFor<P> {
    fn print(&self, text: &[u8]) {
        if !IS_COMPARED.load(Ordering::Relaxed) || stderr_file() == kept_file() {
            keeping_errno(|| write_all(libc::STDERR_FILENO, text));
        }
    }

    fn keep_stderr(&self, _duplicated: bool) {
        let (device, file) = stderr_file();
        KEPT[0].store(device, Ordering::Relaxed);
        KEPT[1].store(file, Ordering::Relaxed);
    }

    fn compare_stderr(&self) {
        IS_COMPARED.store(true, Ordering::Relaxed);
    }

    fn write_file(&self, path: &CStr, work: &mut dyn FnMut(Writer)) -> bool {
        keeping_errno(|| write_file(path, work))
    }

    fn program(&self) -> &'static [u8] {
        let name = program();
        // SAFETY: a C string that stays as long as the process lives.
        if name.is_null() { b"" } else { unsafe { string(name) } }
    }

    fn process_id(&self) -> u32 {
        // SAFETY: the call has no conditions.
        unsafe { libc::getpid() as u32 }
    }

    fn watch_signal(&self, signal: i32, call: extern "C" fn()) {
        signal::watch(signal, call);
    }

    fn watch_faults(&self, call: extern "C" fn(usize, usize)) {
        faults::watch(call);
    }

    fn exit(&self, code: i32) -> ! {
        end::exit(code)
    }

    fn abort(&self) -> ! {
        end::abort()
    }

    /// The system does not tell resident memory of now in a common way: its peak stands for it.
    fn usage(&self) -> Usage {
        let mut used = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the call fills the struct, for which zeros will do.
        let used = keeping_errno(|| unsafe {
            libc::getrusage(libc::RUSAGE_SELF, used.as_mut_ptr());
            used.assume_init()
        });
        let us = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
        let peak_resident = used.ru_maxrss as u64 * PEAK_UNIT_BYTES;
        Usage {
            elapsed_us: (self.now_ms() - BEGUN_MS.load(Ordering::Relaxed)) * 1000,
            user_us: us(used.ru_utime),
            system_us: us(used.ru_stime),
            minor_faults: used.ru_minflt as u64,
            major_faults: used.ru_majflt as u64,
            resident: peak_resident,
            peak_resident,
        }
    }
}

/// The device and the file that standard error was at the start.
static KEPT: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// Whether messages go to that file only.
static IS_COMPARED: AtomicBool = AtomicBool::new(false);

fn kept_file() -> (u64, u64) {
    (KEPT[0].load(Ordering::Relaxed), KEPT[1].load(Ordering::Relaxed))
}

/// The device and the file that standard error is now; zeros if it is closed.
#[allow(clippy::unnecessary_cast, reason = "the fields' types differ between systems")]
fn stderr_file() -> (u64, u64) {
    let mut about = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the call fills the struct, for which zeros will do.
    let about = keeping_errno(|| unsafe {
        libc::fstat(libc::STDERR_FILENO, about.as_mut_ptr());
        about.assume_init()
    });
    (about.st_dev as u64, about.st_ino as u64)
}

/// Whether a file may be put in place of what is there: of a file, or of nothing.
fn is_replaceable(path: &CStr) -> bool {
    let mut about = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the call fills the struct, for which zeros will do.
    unsafe {
        libc::lstat(path.as_ptr(), about.as_mut_ptr()) != 0
            || about.assume_init().st_mode & libc::S_IFMT == libc::S_IFREG
    }
}

/// Writes as much as possible. Returns whether that was all.
fn write_all(file: c_int, mut text: &[u8]) -> bool {
    while !text.is_empty() {
        // SAFETY: the call reads that many bytes of the text.
        match without_cancellation(|| unsafe {
            libc::write(file, text.as_ptr().cast(), text.len())
        }) {
            written @ 1.. => text = &text[written as usize..],
            // SAFETY: the address of this thread's `errno` is valid while the thread lives.
            -1 if unsafe { *errno() } == libc::EINTR => {}
            _ => return false,
        }
    }
    true
}

/// Implements [`OsReports::write_file`]: the file of an earlier call stays until this one is whole.
/// Each thread writes by a part of its own.
fn write_file(path: &CStr, work: &mut dyn FnMut(Writer)) -> bool {
    const OPEN: c_int = libc::O_WRONLY | libc::O_CLOEXEC;
    const NEW: c_int = OPEN | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
    const MODE: libc::c_uint = 0o600;
    if !is_replaceable(path) {
        // SAFETY: the name ends in a zero. The number is this function's alone.
        return unsafe { write_and_close(libc::open(path.as_ptr(), OPEN), work) };
    }
    let mut part = Path::EMPTY;
    part.add(path.to_bytes());
    // Writing to a path never fails: it cuts.
    let _ = write!(part, ".{}.part", thread_number());
    let Some(part) = part.c_str() else { return false };
    // SAFETY: both names end in a zero. The file is this function's alone.
    unsafe {
        libc::unlink(part.as_ptr());
        let is_whole = write_and_close(libc::open(part.as_ptr(), NEW, MODE), work)
            && libc::rename(part.as_ptr(), path.as_ptr()) == 0;
        if !is_whole {
            libc::unlink(part.as_ptr());
        }
        is_whole
    }
}

/// Writes all that `work` passes to its argument, and closes the file. Returns whether all was
/// written: not if the number is that of an error.
fn write_and_close(file: c_int, work: &mut dyn FnMut(Writer)) -> bool {
    let mut is_whole = file >= 0;
    if is_whole {
        work(&mut |text| is_whole &= write_all(file, text));
        // SAFETY: the caller gives the number up.
        is_whole &= unsafe { libc::close(file) } == 0;
    }
    is_whole
}

#[cfg(test)]
mod tests {
    use super::super::super::native::Native;
    use super::*;

    #[test]
    fn usage_moves() {
        let usage = Native.usage();
        assert!(usage.resident > 0 && usage.peak_resident > 0 && usage.elapsed_us < 1 << 40);
    }

    #[test]
    fn the_program_is_known() {
        assert!(!Native.program().is_empty() && Native.process_id() > 0);
    }
}
