//! Reports to people: messages, stacks, symbols, faults and usage.

use core::ffi::{CStr, c_char, c_int};
use core::fmt::Write;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use super::c_library::CLibrary;
use super::hooks::Process;
use super::interface::{OsReports, Usage, Writer};
use super::native::NativeFor;
use super::symbol::Symbol;
use super::{end, faults, roots, signal, stack, unwind, words};
use crate::platform::kernel::auxiliary::{self, page_size};
use crate::platform::kernel::bytes::string;
use crate::platform::kernel::clock;
use crate::platform::kernel::file::{
    close, create, duplicate, is_replaceable, open, read, remove, rename, status, write_all,
};
use crate::platform::kernel::proc::{
    numbers, peak_resident_kib, read_file, start_us, status_pages,
};
use crate::platform::kernel::syscall::call;
use crate::platform::path::Path;

/// A duplicate of standard error, since many programs close theirs before they exit; [`NO_COPY`],
/// or [`CLOSED`] if there was no standard error at the start.
static COPY: AtomicI32 = AtomicI32::new(NO_COPY);
const NO_COPY: i32 = -1;
const CLOSED: i32 = -2;
/// The identity of the duplicate's file ([`file_of`]): some programs close all descriptors and
/// open others.
static COPY_FILE: AtomicU64 = AtomicU64::new(0);
/// What [`stderr_in_proc`] told at the start; zeros if nothing.
static IN_PROC: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Whether the number of standard error may belong to another file of the program: one of the
/// words below.
static NUMBER: AtomicU8 = AtomicU8::new(OURS);
/// It does not, or there was no question yet.
const OURS: u8 = 0;
/// The next message finds out.
const UNKNOWN: u8 = 1;
const ANOTHERS: u8 = 2;

impl<P: Process> OsReports for NativeFor<P> {
    fn print(&self, text: &[u8]) {
        if number_is_anothers() || write_all(libc::STDERR_FILENO, text) == 0 {
            write_to_copy(text);
        }
    }

    /// Keeps a duplicate at a high number: some programs expect the low ones free.
    fn keep_stderr(&self, duplicated: bool) {
        for (place, number) in IN_PROC.iter().zip(stderr_in_proc().unwrap_or_default()) {
            place.store(number, Ordering::Relaxed);
        }
        if file_of(libc::STDERR_FILENO).is_none() {
            COPY.store(CLOSED, Ordering::Relaxed);
        } else if duplicated
            && let Some(copy) = duplicate(libc::STDERR_FILENO, 200)
            && let Some(file) = file_of(copy)
        {
            COPY_FILE.store(file, Ordering::Relaxed);
            COPY.store(copy, Ordering::Relaxed);
        }
    }

    fn compare_stderr(&self) {
        NUMBER.store(UNKNOWN, Ordering::Relaxed);
    }

    fn calls(&self, out: &mut [usize]) -> usize {
        stack::calls(out)
    }

    fn profile_calls(&self, out: &mut [usize]) -> usize {
        unwind::calls(out)
    }

    fn with_symbol(&self, address: usize, may_read: bool, work: &mut dyn FnMut(Option<Symbol>)) {
        stack::with_symbol(address, may_read, work);
    }

    fn c_library(&self) -> CLibrary {
        roots::c_library()
    }

    fn write_file(&self, path: &CStr, work: &mut dyn FnMut(Writer)) -> bool {
        // Not whole yet: until then, the file of an earlier call stays.
        let part = part_of(path);
        let part = part.c_str().filter(|_| is_replaceable(path));
        let (file, part) = match part.and_then(create) {
            Some(file) => (Some(file), part),
            None => (create(path), None),
        };
        let Some(file) = file else { return false };
        let mut is_whole = true;
        work(&mut |text| is_whole &= text.is_empty() || write_all(file, text) == text.len());
        close(file);
        let Some(part) = part else { return is_whole };
        is_whole = is_whole && rename(part, path);
        if !is_whole {
            remove(part);
        }
        is_whole
    }

    fn mappings(&self, out: &mut dyn FnMut(&[u8])) {
        let Some(file) = open(c"/proc/self/maps") else { return };
        let mut text = [0; 1024];
        loop {
            match read(file, &mut text) {
                0 => break,
                length => out(&text[..length]),
            }
        }
        close(file);
    }

    fn program(&self) -> &'static [u8] {
        let path = ptr::with_exposed_provenance::<c_char>(auxiliary::value(libc::AT_EXECFN));
        // SAFETY: the kernel put a string there. It lies behind arguments and environment, in
        // memory that stays as long as the process lives.
        if path.is_null() { b"" } else { unsafe { string(path) } }
    }

    fn process_id(&self) -> u32 {
        // SAFETY: the call touches no memory.
        unsafe { call!(libc::SYS_getpid) }.unwrap_or(0) as u32
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

    fn usage(&self) -> Usage {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the kernel fills the struct, for which all-zero bytes are valid too.
        let usage = unsafe {
            let _ = call!(libc::SYS_getrusage, libc::RUSAGE_SELF, usage.as_mut_ptr());
            usage.assume_init()
        };
        let now = clock::time_by_call(libc::CLOCK_BOOTTIME);
        let micros = |t: libc::timeval| t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64;
        let now_us = now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000;
        Usage {
            elapsed_us: now_us.saturating_sub(start_us().unwrap_or(now_us)),
            user_us: micros(usage.ru_utime),
            system_us: micros(usage.ru_stime),
            minor_faults: usage.ru_minflt as u64,
            major_faults: usage.ru_majflt as u64,
            resident: (status_pages(1) * page_size()) as u64,
            peak_resident: peak_resident_kib().unwrap_or(usage.ru_maxrss as usize) as u64 * 1024,
        }
    }
}

/// The path of a file that is to take the place of the one at `path`. Each thread has its own, also
/// among processes.
fn part_of(path: &CStr) -> Path {
    let mut part = Path::EMPTY;
    part.add(path.to_bytes());
    // Writing to a path never fails: it cuts.
    let _ = write!(part, ".{}.part", words::number());
    part
}

/// Whether the number of standard error belongs to another file of the program.
fn number_is_anothers() -> bool {
    if NUMBER.load(Ordering::Relaxed) == UNKNOWN {
        let was = IN_PROC.each_ref().map(|number| number.load(Ordering::Relaxed));
        let is_anothers = COPY.load(Ordering::Relaxed) == CLOSED
            || was != [0; 2] && stderr_in_proc().is_some_and(|now| now != was);
        NUMBER.store(if is_anothers { ANOTHERS } else { OURS }, Ordering::Relaxed);
    }
    NUMBER.load(Ordering::Relaxed) == ANOTHERS
}

/// Writes to the duplicate, unless the program has given its number to another file.
fn write_to_copy(text: &[u8]) {
    let copy = COPY.load(Ordering::Relaxed);
    if copy >= 0 && file_of(copy) == Some(COPY_FILE.load(Ordering::Relaxed)) {
        write_all(copy, text);
    }
}

/// Mount and inode of the file that has standard error's number. By /proc: statistics read files
/// there anyway, and a filter of system calls may kill for statx. `None` before Linux 5.14.
fn stderr_in_proc() -> Option<[usize; 2]> {
    let mut text = [0; 256];
    let text = read_file(c"/proc/self/fdinfo/2", &mut text);
    let number_behind = |name: &[u8]| {
        let at = text.windows(name.len()).position(|window| window == name)?;
        numbers(&text[at..]).next()
    };
    Some([number_behind(b"mnt_id:")?, number_behind(b"\nino:")?])
}

/// A hash of the device and inode of a descriptor's file. `None` if the descriptor is not open.
fn file_of(descriptor: c_int) -> Option<u64> {
    let status = status(descriptor, c"")?;
    let device = (status.stx_dev_major as u64) << 32 | status.stx_dev_minor as u64;
    Some(status.stx_ino.wrapping_mul(31).wrapping_add(device))
}

#[cfg(test)]
mod tests {
    use super::super::native::Native;
    use super::*;

    #[test]
    fn usage_moves() {
        let usage = Native.usage();
        assert!(usage.resident > 0 && usage.peak_resident > 0 && usage.elapsed_us > 0);
    }
}
