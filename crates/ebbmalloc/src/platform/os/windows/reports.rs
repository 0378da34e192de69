//! Reports to people: messages, files, faults and usage. Stacks and symbols are not read.

use core::ffi::{CStr, c_void};
use core::fmt::Write;
use core::ptr;
use core::slice;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::super::hooks::Process;
use super::super::interface::{OsReports, Usage, Writer};
use super::super::native::NativeFor;
use super::text::{utf8, utf16};
use crate::platform::arch::fail_fast;
use crate::platform::kernel::windows::{
    AddVectoredExceptionHandler, CloseHandle, CreateFileW, DeleteFileW, ExceptionPointers,
    GetCurrentProcessId, GetCurrentThreadId, GetModuleFileNameW, GetProcessTimes, GetStdHandle,
    GetSystemTimeAsFileTime, Handle, K32GetProcessMemoryInfo, MemoryCounters, MoveFileExW, NO_FILE,
    THIS_PROCESS, TerminateProcess, WriteFile, keeping_error,
};
use crate::platform::path::Path;
use crate::platform::sync::Lock;

impl<P: Process> OsReports for NativeFor<P> {
    fn print(&self, text: &[u8]) {
        const STANDARD_ERROR: u32 = -12_i32 as u32;
        // SAFETY: the call has no conditions.
        keeping_error(|| write_all(unsafe { GetStdHandle(STANDARD_ERROR) }, text));
    }

    fn write_file(&self, path: &CStr, work: &mut dyn FnMut(Writer)) -> bool {
        keeping_error(|| write_file(path.to_bytes(), work))
    }

    fn program(&self) -> &'static [u8] {
        program()
    }

    fn process_id(&self) -> u32 {
        // SAFETY: the call has no conditions.
        unsafe { GetCurrentProcessId() }
    }

    fn watch_faults(&self, call: extern "C" fn(usize, usize)) {
        AT_FAULT.store(call as *mut c_void, Ordering::Relaxed);
        // SAFETY: the handler stays: it is part of the program.
        keeping_error(|| unsafe { AddVectoredExceptionHandler(1, handle) });
    }

    fn exit(&self, code: i32) -> ! {
        loop {
            // SAFETY: the process is meant to end.
            unsafe { TerminateProcess(THIS_PROCESS, code as u32) };
        }
    }

    fn abort(&self) -> ! {
        fail_fast()
    }

    fn usage(&self) -> Usage {
        let (mut begun, mut ended, mut system, mut user, mut now) = (0, 0, 0, 0, 0);
        let length = size_of::<MemoryCounters>() as u32;
        let mut memory = MemoryCounters { length, ..MemoryCounters::default() };
        // SAFETY: the calls fill the numbers and the struct.
        keeping_error(|| unsafe {
            GetProcessTimes(THIS_PROCESS, &mut begun, &mut ended, &mut system, &mut user);
            GetSystemTimeAsFileTime(&mut now);
            K32GetProcessMemoryInfo(THIS_PROCESS, &mut memory, length);
        });
        // Windows counts by tenths of a microsecond.
        Usage {
            elapsed_us: now.saturating_sub(begun) / 10,
            user_us: user / 10,
            system_us: system / 10,
            minor_faults: memory.page_faults.into(),
            major_faults: 0,
            resident: memory.working_set as u64,
            peak_resident: memory.peak_working_set as u64,
        }
    }
}

/// Writes as much as possible. Returns whether that was all.
fn write_all(file: Handle, mut text: &[u8]) -> bool {
    while !text.is_empty() {
        let (bytes, mut written) = (text.len().min(1 << 20) as u32, 0);
        // SAFETY: the call reads that many bytes of the text.
        let done =
            unsafe { WriteFile(file, text.as_ptr(), bytes, &mut written, ptr::null_mut()) } != 0;
        if !done || written == 0 {
            return false;
        }
        text = &text[written as usize..];
    }
    true
}

/// Implements [`OsReports::write_file`]: the file of an earlier call stays until this one is whole.
/// Each thread writes by a part of its own.
fn write_file(path: &[u8], work: &mut dyn FnMut(Writer)) -> bool {
    const WRITE: u32 = 0x4000_0000;
    const ALWAYS_NEW: u32 = 2;
    const NORMAL: u32 = 0x80;
    const REPLACE: u32 = 1;
    let mut part = Path::EMPTY;
    part.add(path);
    // SAFETY: the call has no conditions. Writing to a path never fails: it cuts.
    let _ = write!(part, ".{}.part", unsafe { GetCurrentThreadId() });
    let part = part.c_str().and_then(|part| utf16(part.to_bytes()));
    let (Some(part), Some(path)) = (part, utf16(path)) else { return false };
    let (none, no_file) = (ptr::null(), ptr::null_mut());
    // SAFETY: both names end in a zero. The file is this function's alone.
    unsafe {
        let file = CreateFileW(part.as_ptr(), WRITE, 0, none, ALWAYS_NEW, NORMAL, no_file);
        if file == NO_FILE {
            return false;
        }
        let mut is_whole = true;
        work(&mut |text| is_whole &= write_all(file, text));
        CloseHandle(file);
        is_whole = is_whole && MoveFileExW(part.as_ptr(), path.as_ptr(), REPLACE) != 0;
        if !is_whole {
            DeleteFileW(part.as_ptr());
        }
        is_whole
    }
}

/// The path of the program, with `/` between its parts.
fn program() -> &'static [u8] {
    const UNITS: usize = 520;
    const BYTES: usize = 1024;
    static PATH: Lock<[u8; BYTES]> = Lock::new([0; BYTES]);
    static IS_READ: AtomicBool = AtomicBool::new(false);
    let mut path = PATH.lock();
    if !IS_READ.load(Ordering::Relaxed) {
        let mut name = [0; UNITS];
        // SAFETY: the call fills the name. No module means the program.
        let length = keeping_error(|| unsafe {
            GetModuleFileNameW(ptr::null_mut(), name.as_mut_ptr(), UNITS as u32)
        });
        let units = name[..length as usize].iter().copied();
        utf8(
            units.map(|unit| if unit == b'\\'.into() { b'/'.into() } else { unit }),
            &mut path[..],
        );
        IS_READ.store(true, Ordering::Relaxed);
    }
    let length = path.iter().position(|&byte| byte == 0).unwrap_or(BYTES);
    // SAFETY: the path is written once, before this, and lives as long as the program.
    unsafe { slice::from_raw_parts(path.as_ptr(), length) }
}

/// The function that is told of faults.
static AT_FAULT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Tells of an access that faults. Windows goes on to the next handler.
unsafe extern "system" fn handle(pointers: *const ExceptionPointers) -> i32 {
    const ACCESS_VIOLATION: u32 = 0xc000_0005;
    const CONTINUE_SEARCH: i32 = 0;
    // SAFETY: Windows passes a record, and `watch_faults` stored a function of this type.
    unsafe {
        let exception = &*(*pointers).exception;
        if exception.code == ACCESS_VIOLATION && exception.count >= 2 {
            let call = AT_FAULT.load(Ordering::Relaxed);
            let call = core::mem::transmute::<*mut c_void, extern "C" fn(usize, usize)>(call);
            call(exception.arguments[1], exception.address);
        }
    }
    CONTINUE_SEARCH
}

#[cfg(test)]
mod tests {
    use super::super::super::native::Native;
    use super::*;

    #[test]
    fn usage_moves() {
        let usage = Native.usage();
        assert!(usage.resident > 0 && usage.peak_resident > 0 && usage.elapsed_us > 0);
    }

    #[test]
    fn the_program_is_known() {
        assert!(Native.program().ends_with(b".exe") && Native.process_id() > 0);
    }
}
