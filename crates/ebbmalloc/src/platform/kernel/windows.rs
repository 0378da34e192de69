//! Declares the functions of Windows that the engine calls.
//!
//! They are linked by their libraries' usual names, so that no tool is needed that makes import
//! libraries ("raw-dylib").

use core::ffi::c_void;
use core::ptr;

/// A kernel object, or a pointer in place of one.
pub(crate) type Handle = *mut c_void;

/// The handle of this process.
pub(crate) const THIS_PROCESS: Handle = ptr::without_provenance_mut(usize::MAX);
/// What functions return in place of a file's handle.
pub(crate) const NO_FILE: Handle = ptr::without_provenance_mut(usize::MAX);

pub(crate) const MEM_COMMIT: u32 = 0x1000;
pub(crate) const MEM_RESERVE: u32 = 0x2000;
pub(crate) const MEM_DECOMMIT: u32 = 0x4000;
pub(crate) const MEM_RELEASE: u32 = 0x8000;
pub(crate) const PAGE_READWRITE: u32 = 4;
pub(crate) const INFINITE: u32 = u32::MAX;

/// `MEMORYSTATUSEX`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct MemoryStatus {
    pub length: u32,
    /// The percentage of memory in use.
    pub load: u32,
    pub memory: u64,
    pub memory_free: u64,
    /// What all processes together may commit: memory and page files.
    pub commit: u64,
    pub commit_free: u64,
    pub addresses: u64,
    pub addresses_free: u64,
    pub extended: u64,
}

impl MemoryStatus {
    /// That of now; zeros if Windows does not tell.
    pub(crate) fn now() -> Self {
        let mut status = Self { length: size_of::<Self>() as u32, ..Self::default() };
        // SAFETY: the call fills the struct, whose length is in it.
        keeping_error(|| unsafe { GlobalMemoryStatusEx(&mut status) });
        status
    }
}

/// `JOBOBJECT_EXTENDED_LIMIT_INFORMATION`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct JobLimits {
    pub times: [u64; 2],
    pub flags: u32,
    pub working_sets: [usize; 2],
    pub processes: u32,
    pub affinity: usize,
    pub classes: [u32; 2],
    pub transfers: [u64; 6],
    pub process_memory: usize,
    pub job_memory: usize,
    pub peaks: [usize; 2],
}

/// `PROCESS_MEMORY_COUNTERS`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct MemoryCounters {
    pub length: u32,
    pub page_faults: u32,
    pub peak_working_set: usize,
    pub working_set: usize,
    pub pools: [usize; 4],
    pub commit: usize,
    pub peak_commit: usize,
}

/// The beginning of `OSVERSIONINFOW`, and room for the rest.
#[repr(C)]
pub(crate) struct Version {
    pub length: u32,
    pub major: u32,
    pub minor: u32,
    pub rest: [u32; 66],
}

/// `EXCEPTION_RECORD`.
#[repr(C)]
pub(crate) struct Exception {
    pub code: u32,
    pub flags: u32,
    pub next: *const Self,
    /// That of the instruction.
    pub address: usize,
    pub count: u32,
    pub arguments: [usize; 15],
}

/// `EXCEPTION_POINTERS`.
#[repr(C)]
pub(crate) struct ExceptionPointers {
    pub exception: *const Exception,
    pub context: *const c_void,
}

#[link(name = "kernel32")]
unsafe extern "system" {
    pub(crate) fn VirtualAlloc(
        start: *mut c_void,
        bytes: usize,
        kind: u32,
        access: u32,
    ) -> *mut c_void;
    pub(crate) fn VirtualFree(start: *mut c_void, bytes: usize, kind: u32) -> i32;
    pub(crate) fn VirtualQuery(start: *const c_void, found: *mut usize, bytes: usize) -> usize;
    pub(crate) fn K32QueryWorkingSetEx(process: Handle, pages: *mut [usize; 2], bytes: u32) -> i32;
    pub(crate) fn K32GetProcessMemoryInfo(
        process: Handle,
        found: *mut MemoryCounters,
        bytes: u32,
    ) -> i32;
    pub(crate) fn GlobalMemoryStatusEx(found: *mut MemoryStatus) -> i32;
    pub(crate) fn QueryInformationJobObject(
        job: Handle,
        kind: i32,
        found: *mut JobLimits,
        bytes: u32,
        length: *mut u32,
    ) -> i32;

    pub(crate) fn GetActiveProcessorCount(group: u16) -> u32;
    pub(crate) fn GetCurrentThreadId() -> u32;
    pub(crate) fn CreateThread(
        attributes: *const c_void,
        stack_bytes: usize,
        work: extern "system" fn(*mut c_void) -> u32,
        argument: *mut c_void,
        flags: u32,
        id: *mut u32,
    ) -> Handle;
    pub(crate) fn CloseHandle(handle: Handle) -> i32;
    pub(crate) fn Sleep(ms: u32);

    pub(crate) fn GetCurrentProcessId() -> u32;
    pub(crate) fn TerminateProcess(process: Handle, code: u32) -> i32;
    pub(crate) fn GetProcessTimes(
        process: Handle,
        begun: *mut u64,
        ended: *mut u64,
        system: *mut u64,
        user: *mut u64,
    ) -> i32;
    pub(crate) fn GetSystemTimeAsFileTime(now: *mut u64);
    pub(crate) fn GetTickCount64() -> u64;
    pub(crate) fn GetEnvironmentStringsW() -> *mut u16;
    pub(crate) fn FreeEnvironmentStringsW(strings: *mut u16) -> i32;
    pub(crate) fn GetModuleHandleExW(flags: u32, name: *const u16, found: *mut Handle) -> i32;
    pub(crate) fn GetModuleFileNameW(module: Handle, name: *mut u16, length: u32) -> u32;
    pub(crate) fn AddVectoredExceptionHandler(
        first: u32,
        handler: unsafe extern "system" fn(*const ExceptionPointers) -> i32,
    ) -> Handle;

    pub(crate) fn GetStdHandle(which: u32) -> Handle;
    pub(crate) fn CreateFileW(
        name: *const u16,
        access: u32,
        share: u32,
        security: *const c_void,
        creation: u32,
        flags: u32,
        template: Handle,
    ) -> Handle;
    pub(crate) fn WriteFile(
        file: Handle,
        text: *const u8,
        bytes: u32,
        written: *mut u32,
        overlapped: *mut c_void,
    ) -> i32;
    pub(crate) fn MoveFileExW(from: *const u16, to: *const u16, flags: u32) -> i32;
    pub(crate) fn DeleteFileW(name: *const u16) -> i32;

    fn GetLastError() -> u32;
    fn SetLastError(error: u32);
}

#[link(name = "synchronization")]
unsafe extern "system" {
    pub(crate) fn WaitOnAddress(
        word: *const c_void,
        compared: *const c_void,
        bytes: usize,
        ms: u32,
    ) -> i32;
    pub(crate) fn WakeByAddressSingle(word: *const c_void);
}

#[link(name = "advapi32")]
unsafe extern "system" {
    /// `RtlGenRandom`.
    #[link_name = "SystemFunction036"]
    pub(crate) fn fill_with_random(bytes: *mut c_void, length: u32) -> u8;
}

#[link(name = "ntdll")]
unsafe extern "system" {
    pub(crate) fn RtlGetVersion(found: *mut Version) -> i32;
    pub(crate) fn RtlDllShutdownInProgress() -> u8;
}

/// Runs `call` and restores the thread's last error: the program must not see the engine's own
/// calls fail.
pub(crate) fn keeping_error<R>(call: impl FnOnce() -> R) -> R {
    // SAFETY: both functions access a word of the calling thread's.
    unsafe {
        let error = GetLastError();
        let result = call();
        SetLastError(error);
        result
    }
}
