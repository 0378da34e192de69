//! Tells threads apart, notices their exit, and starts a thread of the engine's own.

use core::ffi::c_void;
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::super::hooks::Process;
use super::super::interface::{OsThreads, RseqArea};
use super::super::native::NativeFor;
use super::super::thread_words::ThreadWords;
use super::events::{AT_THREAD_EXIT, FIRST, HAD_THREADS, OwnBlock, own_block};
use crate::platform::arch::thread_pointer;
use crate::platform::kernel::futex;
use crate::platform::kernel::windows::{
    CloseHandle, CreateThread, GetActiveProcessorCount, GetCurrentThreadId, GetModuleHandleExW,
    Sleep, keeping_error,
};

impl<P: Process> OsThreads for NativeFor<P> {
    fn cpus(&self) -> usize {
        const ALL_GROUPS: u16 = 0xffff;
        // SAFETY: the call has no conditions.
        keeping_error(|| unsafe { GetActiveProcessorCount(ALL_GROUPS) }).max(1) as usize
    }

    fn rseq(&self) -> Result<RseqArea, &'static str> {
        Err("Windows has no restartable sequences")
    }

    fn thread_token(&self) -> usize {
        // Threads' blocks lie at least two pages apart.
        thread_pointer() >> 13
    }

    fn thread_id(&self) -> u32 {
        // SAFETY: the call has no conditions.
        unsafe { GetCurrentThreadId() }
    }

    #[inline(always)]
    fn thread_words(&self) -> &ThreadWords {
        // SAFETY: the words live as long as the thread, and the reference does not leave it.
        unsafe { &(*own_block()).words }
    }

    /// Words are there as long as a thread has a cache: see `events.rs`.
    #[expect(clippy::not_unsafe_ptr_arg_deref, reason = "the engine asks of such threads only")]
    fn may_be(&self, words: *const ThreadWords, state: u32) -> bool {
        // SAFETY: a thread gives its cache up before Windows frees its words.
        unsafe { (*words).is_in(state) }
    }

    fn is_first(&self) -> bool {
        FIRST.load(Ordering::Relaxed) == self.thread_id()
    }

    /// Threads that were there before this file was loaded are not known.
    fn is_single(&self) -> bool {
        false
    }

    fn had_threads(&self) -> bool {
        HAD_THREADS.load(Ordering::Relaxed)
    }

    fn watch_threads(&self, exit: Option<extern "C" fn(bool)>) -> Result<(), &'static str> {
        if let Some(exit) = exit {
            AT_THREAD_EXIT.store(exit as *mut c_void, Ordering::Relaxed);
        }
        Ok(())
    }

    fn watch_thread(&self) -> bool {
        let own: *const OwnBlock = own_block();
        // SAFETY: the block lives as long as the thread.
        unsafe { (*own).is_watched.store(true, Ordering::Relaxed) };
        true
    }

    fn start_thread(&self, work: extern "C" fn()) -> Option<usize> {
        start(work)
    }

    fn join_thread(&self, thread: usize) {
        join(thread as u32);
    }

    fn sleep_ms(&self, ms: u32) {
        // SAFETY: sleeping has no conditions.
        unsafe { Sleep(ms) };
    }
}

/// What [`start`] runs.
static WORK: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// The number of the thread that was started last, and in the low bits how far it is. Only one does
/// its work at a time: the engine joins the last before it starts the next.
static THREAD: AtomicU32 = AtomicU32::new(ENDED);
const NEXT: u32 = 4;
/// It may not have begun: the lock of the loader may be held.
const STARTED: u32 = 0;
/// It does its work.
const WORKING: u32 = 1;
/// It does no work any more, or never will. The thread itself may still be there.
const ENDED: u32 = 2;

/// Implements [`OsThreads::start_thread`]. The handle is the thread's number.
fn start(work: extern "C" fn()) -> Option<usize> {
    /// The stack is this long, not only its committed part.
    const STACK_IS_RESERVED: u32 = 0x1_0000;
    const STACK_BYTES: usize = 256 << 10;
    let number = (THREAD.load(Ordering::Relaxed) & !(NEXT - 1)).wrapping_add(NEXT);
    WORK.store(work as *mut c_void, Ordering::Relaxed);
    THREAD.store(number | STARTED, Ordering::Release);
    let argument = ptr::without_provenance_mut(number as usize);
    // SAFETY: the function takes its argument as a number. The handle is not used any more.
    keeping_error(|| unsafe {
        let (none, no_id) = (ptr::null(), ptr::null_mut());
        let thread = CreateThread(none, STACK_BYTES, run, argument, STACK_IS_RESERVED, no_id);
        (!thread.is_null()).then(|| {
            CloseHandle(thread);
            number as usize
        })
    })
}

extern "system" fn run(number: *mut c_void) -> u32 {
    const PIN: u32 = 1;
    const FROM_ADDRESS: u32 = 4;
    // First of all, since this takes the lock of the loader: the file with this code stays loaded.
    // SAFETY: the call fills the handle. The address lies in this file.
    unsafe {
        let mut file = ptr::null_mut();
        GetModuleHandleExW(PIN | FROM_ADDRESS, (&raw const WORK).cast(), &mut file);
    }
    let number = number.addr() as u32;
    let (started, working) = (number | STARTED, number | WORKING);
    if THREAD.compare_exchange(started, working, Ordering::Acquire, Ordering::Relaxed).is_ok() {
        let work = WORK.load(Ordering::Relaxed);
        // SAFETY: `start` stored a function of this type.
        unsafe { mem::transmute::<*mut c_void, extern "C" fn()>(work)() };
        THREAD.store(number | ENDED, Ordering::Release);
        futex::futex_wake(&THREAD);
    }
    0
}

/// Implements [`OsThreads::join_thread`]: waits for the end of the thread's work, and not for that
/// of the thread. The caller may hold the lock of the loader, which threads need to begin and to
/// end. So one that has not begun yet will do nothing.
fn join(number: u32) {
    let (started, ended) = (number | STARTED, number | ENDED);
    let mut state = THREAD.compare_exchange(started, ended, Ordering::Acquire, Ordering::Acquire);
    while state == Err(number | WORKING) {
        futex::futex_wait(&THREAD, number | WORKING, None);
        state = Err(THREAD.load(Ordering::Acquire));
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::super::super::native::Native;
    use super::*;

    #[test]
    fn threads_have_words_of_their_own() {
        let first = ptr::from_ref(Native.thread_words()).addr();
        let (other, token) =
            thread::spawn(|| (ptr::from_ref(Native.thread_words()).addr(), Native.thread_token()))
                .join()
                .unwrap();
        assert_ne!((other, token), (first, Native.thread_token()));
        assert!(Native.cpus() >= 1 && Native.had_threads());
    }
}
