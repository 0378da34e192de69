//! Implements the contract on Linux. Nothing here needs the C library to be initialised: the
//! dynamic loader may ask for the first block before any constructor has run.

use core::ffi::{CStr, c_char, c_int};
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use super::hooks::Hooks;
use super::interface::{
    Bell, OsMemory, OsProcess, OsReports, OsThreads, Refusal, RseqArea, Usage, Writer,
};
use super::roots::CLibrary;
use super::stack::Symbol;
use super::thread_pointer::thread_pointer;
use super::threads::ThreadWords;
use super::{
    background, end, faults, fork, guard, mapping, memory, moving, own_area, random, release,
    roots, rseq_area, sanitizer, signal, stack, threads,
};
use crate::platform::kernel::auxiliary::page_size;
use crate::platform::kernel::errno::keeping_errno;
use crate::platform::kernel::file::{close, create, duplicate, open, read, status, write_all};
use crate::platform::kernel::proc::{
    affinity_cpus, highest_number, initial_environment, read_file, start_us, status_pages,
};
use crate::platform::kernel::syscall::call;
use crate::platform::kernel::{clock, futex};

/// Linux as the platform of the engine that process `P` serves.
///
/// `P` is a type and not a field. So an engine that is not set up consists of zeros, and takes no
/// space in the program's file.
#[derive(Clone, Copy, Default, Debug)]
pub struct LinuxFor<P>(PhantomData<P>);

/// A process that serves an engine by hooks.
pub trait Process: Sync {
    /// The hooks, if the process serves this engine.
    const HOOKS: Option<&'static Hooks>;
}

impl Process for () {
    const HOOKS: Option<&'static Hooks> = None;
}

impl<P> LinuxFor<P> {
    /// The platform's value.
    pub const NEW: Self = Self(PhantomData);
}

/// Linux as the platform of engines that no process serves.
pub type Linux = LinuxFor<()>;
/// The value of type [`Linux`](type@Linux).
#[expect(non_upper_case_globals, reason = "reads as a value of a unit type")]
pub const Linux: Linux = Linux::NEW;

/// A duplicate of standard error, since many programs close theirs before the statistics are
/// printed; -1 for none.
static COPY: AtomicI32 = AtomicI32::new(-1);
/// The identity of the duplicate's file ([`file_of`]): some programs close all descriptors and
/// open others.
static COPY_FILE: AtomicU64 = AtomicU64::new(0);

impl<P: Process> OsMemory for LinuxFor<P> {
    fn page_size(&self) -> usize {
        page_size()
    }

    fn address_space(&self) -> usize {
        mapping::address_space()
    }

    fn addresses(&self, bytes: usize, align: usize, attempt: u32) -> Option<NonNull<u8>> {
        mapping::addresses(bytes, align, attempt)
    }

    unsafe fn commit(&self, start: *mut u8, bytes: usize) -> Result<(), Refusal> {
        // SAFETY: the caller guarantees that the range was chosen and is not committed.
        unsafe { mapping::commit(start.cast(), bytes) }
    }

    unsafe fn extend(&self, start: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller guarantees that the range was chosen and is not committed, and that
        // the page before it is committed.
        unsafe { mapping::extend(start.cast(), bytes) }
    }

    unsafe fn decommit(&self, start: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller guarantees that the range is committed and unused.
        unsafe { mapping::decommit(start.cast(), bytes) }
    }

    fn can_hide(&self, page: *mut u8) -> bool {
        guard::can_hide(page.cast(), self.page_size())
    }

    unsafe fn hide(&self, start: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller guarantees that the range is committed and unused.
        unsafe { guard::hide(start.cast(), bytes) }
    }

    unsafe fn show(&self, start: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller guarantees that the range is hidden.
        unsafe { guard::show(start.cast(), bytes) }
    }

    unsafe fn purge(&self, start: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller guarantees that the range is committed and its contents unused.
        unsafe { mapping::purge(start.cast(), bytes) }
    }

    fn populate(&self, start: *mut u8, bytes: usize) {
        mapping::populate(start.cast(), bytes);
    }

    unsafe fn back_by_huge_page(&self, start: *mut u8, bytes: usize) -> Option<u64> {
        // SAFETY: the caller guarantees that the range is committed, clean and unused.
        unsafe { mapping::back_by_huge_page(start.cast(), bytes) }
    }

    unsafe fn back_by_small_pages(&self, start: *mut u8, bytes: usize) -> u64 {
        // SAFETY: the caller guarantees that the range is committed, clean and unused.
        unsafe { mapping::back_by_small_pages(start.cast(), bytes) }
    }

    unsafe fn move_pages(&self, from: *mut u8, to: *mut u8, bytes: usize, to_bytes: usize) -> bool {
        // SAFETY: the caller guarantees the contract of `OsMemory::move_pages`.
        unsafe { moving::move_pages(from.cast(), to.cast(), bytes, to_bytes) }
    }

    fn memory_limit(&self) -> Option<u64> {
        memory::limit()
    }

    fn resident(&self, address: usize, pages: &mut [bool]) {
        let page = self.page_size();
        for (nth, pages) in pages.chunks_mut(MINCORE_PAGES).enumerate() {
            let start = address + nth * MINCORE_PAGES * page;
            if !mincore(start, page, pages) {
                // Part of it is not mapped.
                for (nth, one) in pages.chunks_mut(1).enumerate() {
                    if !mincore(start + nth * page, page, one) {
                        one[0] = false;
                    }
                }
            }
        }
    }
}

impl<P: Process> OsThreads for LinuxFor<P> {
    fn cpus(&self) -> usize {
        // Not by sysconf(3): glibc's reads a directory, and allocates for it.
        let mut text = [0; 256];
        let possible = read_file(c"/sys/devices/system/cpu/possible", &mut text);
        highest_number(possible).map_or_else(affinity_cpus, |last| last + 1).max(1)
    }

    fn rseq(&self) -> Result<RseqArea, &'static str> {
        rseq_area::find(self)
    }

    fn join_rseq(&self) -> bool {
        own_area::register().is_ok()
    }

    fn leave_rseq(&self) {
        own_area::unregister();
    }

    fn thread_key(&self) -> usize {
        // The C library's descriptors of threads lie at least a page apart.
        thread_pointer() >> 12
    }

    fn thread_id(&self) -> u32 {
        threads::number()
    }

    #[inline(always)]
    fn thread_words(&self) -> &ThreadWords {
        // SAFETY: the words live as long as the thread, and the reference does not leave it.
        unsafe { &*threads::words() }
    }

    fn may_be(&self, words: *const ThreadWords, state: u32) -> bool {
        threads::may_be(words, state)
    }

    fn is_first(&self) -> bool {
        background::is_first()
    }

    fn is_single(&self) -> bool {
        background::is_single()
    }

    fn had_threads(&self) -> bool {
        background::had_threads()
    }

    fn watch_threads(&self, exit: Option<extern "C" fn(bool)>) -> Result<(), &'static str> {
        threads::prepare(exit)
    }

    fn claim_thread_key(&self) {
        threads::claim_key();
    }

    fn watch_thread(&self) -> bool {
        threads::watch()
    }

    fn can_stop(&self) -> bool {
        // With several threads, membarrier(2) would do both. But a filter of system calls may kill
        // for it, and no call that filters allow tells whether there is one: decisions/0032.
        background::is_single()
    }

    fn pass_barrier(&self) -> bool {
        self.can_stop()
    }

    fn restart_sequences(&self) -> bool {
        self.can_stop()
    }

    fn start_thread(&self, work: extern "C" fn()) -> Option<usize> {
        background::start(work)
    }

    fn join_thread(&self, thread: usize) {
        background::join(thread);
    }

    fn sleep_ms(&self, ms: u32) {
        futex::sleep_ms(ms);
    }

    fn doze_ms(&self, bell: &Bell, ms: u32) {
        background::doze_ms(bell, ms);
    }

    fn ring(&self, bell: &Bell) {
        background::ring(bell);
    }
}

impl<P: Process> OsProcess for LinuxFor<P> {
    fn hooks(&self) -> Option<&'static Hooks> {
        P::HOOKS
    }

    fn objection(&self) -> Option<&'static str> {
        sanitizer::objection()
    }

    fn withdraw_objection(&self) {
        sanitizer::withdraw_objection();
    }

    fn kernel(&self) -> [u32; 2] {
        release::kernel()
    }

    fn random(&self) -> u64 {
        random::random()
    }

    fn now_ms(&self) -> u64 {
        let now = clock::time(libc::CLOCK_MONOTONIC_COARSE);
        now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
    }

    #[inline(never)]
    fn environment(&self, name: &str, buffer: &mut [u8]) -> Option<usize> {
        unsafe extern "C" {
            static environ: *const *const c_char;
        }
        // SAFETY: `environ` is null before the C library has started; then it is a list of C
        // strings that ends in a null pointer.
        unsafe {
            if environ.is_null() {
                return initial_environment(name.as_bytes(), buffer);
            }
            let mut entry = environ;
            while !(*entry).is_null() {
                let byte_at = |nth: usize| *(*entry).cast::<u8>().add(nth);
                // `name` has no zero byte, so a shorter entry differs at its terminator.
                let is_equal = |(nth, &byte)| byte_at(nth) == byte;
                let is_named = name.as_bytes().iter().enumerate().all(is_equal);
                if is_named && byte_at(name.len()) == b'=' {
                    let value = (name.len() + 1..).map(byte_at).take_while(|&byte| byte != 0);
                    let copied = buffer.iter_mut().zip(value);
                    return Some(copied.map(|(to, from)| *to = from).count());
                }
                entry = entry.add(1);
            }
        }
        None
    }

    fn out_of_memory(&self) {
        // SAFETY: the address of this thread's `errno` is valid while the thread lives.
        unsafe { *libc::__errno_location() = libc::ENOMEM }
    }

    fn at_fork(&self, before: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
        fork::at_fork(before, parent, child);
    }

    fn at_exit(&self, call: extern "C" fn(), lasting: bool) {
        keeping_errno(|| {
            if lasting {
                keep_stderr();
            }
            // SAFETY: the function is never unloaded: it is part of the program, or of a library
            // that stays.
            unsafe { libc::atexit(call) };
        });
    }
}

impl<P: Process> OsReports for LinuxFor<P> {
    fn print(&self, text: &[u8]) {
        let copy = COPY.load(Ordering::Relaxed);
        if write_all(libc::STDERR_FILENO, text) == 0
            && file_of(copy) == Some(COPY_FILE.load(Ordering::Relaxed))
        {
            write_all(copy, text);
        }
    }

    fn calls(&self, out: &mut [usize]) -> usize {
        stack::calls(out)
    }

    fn with_symbol(&self, address: usize, may_read: bool, work: &mut dyn FnMut(Option<Symbol>)) {
        stack::with_symbol(address, may_read, work);
    }

    fn c_library(&self) -> CLibrary {
        roots::c_library()
    }

    fn write_file(&self, path: &CStr, work: &mut dyn FnMut(Writer)) -> bool {
        let Some(file) = create(path) else { return false };
        let mut is_whole = true;
        work(&mut |text| is_whole &= text.is_empty() || write_all(file, text) == text.len());
        close(file);
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
        let now = clock::time(libc::CLOCK_BOOTTIME);
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

/// Keeps a duplicate of standard error, at a high number: some programs expect the low ones free.
fn keep_stderr() {
    if let Some(copy) = duplicate(libc::STDERR_FILENO, 200)
        && let Some(file) = file_of(copy)
    {
        COPY_FILE.store(file, Ordering::Relaxed);
        COPY.store(copy, Ordering::Relaxed);
    }
}

/// A hash of the device and inode of a descriptor's file. `None` if the descriptor is not open.
fn file_of(descriptor: c_int) -> Option<u64> {
    let status = status(descriptor, c"")?;
    let device = (status.stx_dev_major as u64) << 32 | status.stx_dev_minor as u64;
    Some(status.stx_ino.wrapping_mul(31).wrapping_add(device))
}

/// The most pages for one call of [`mincore`].
const MINCORE_PAGES: usize = 256;

/// Sets which of at most [`MINCORE_PAGES`] pages of `page` bytes are resident: mincore(2). False
/// if part of the range is not mapped.
fn mincore(address: usize, page: usize, pages: &mut [bool]) -> bool {
    // A byte for each page. The lowest bit means resident.
    let mut flags = [0_u8; MINCORE_PAGES];
    let bytes = pages.len() * page;
    // SAFETY: the kernel fills a byte for each page, of which there are at most `MINCORE_PAGES`.
    let done = unsafe { call!(libc::SYS_mincore, address, bytes, flags.as_mut_ptr()) }.is_ok();
    if done {
        pages.iter_mut().zip(&flags).for_each(|(page, flag)| *page = flag & 1 == 1);
    }
    done
}

#[cfg(test)]
mod tests {
    use std::{format, fs};

    use super::*;

    #[test]
    fn there_is_a_cpu() {
        assert!(Linux.cpus() >= 1 && affinity_cpus() >= 1);
    }

    #[test]
    fn committed_memory_is_aligned_zero_and_purgeable() {
        let page = Linux.page_size();
        let start = Linux.addresses(16 * page, 1 << 21, 0).unwrap().as_ptr();
        assert_eq!(start.addr() % (1 << 21), 0);
        // SAFETY: the range was just chosen, and is this test's own.
        unsafe {
            Linux.commit(start, page).unwrap();
            assert_eq!(start.read(), 0);
            start.write(7);
            assert!(Linux.purge(start, page));
            assert_eq!(start.read(), 0);
        }
        assert!(Linux.addresses(usize::MAX / 2, 1 << 16, 0).is_none());
    }

    #[test]
    fn memory_is_made_resident_at_once_and_keeps_what_it_contains() {
        // Emulators, which have no rseq either, do not know this advice.
        if Linux.kernel() < [5, 14] || Linux.rseq().is_err() {
            return;
        }
        let page = Linux.page_size();
        let start = Linux.addresses(4 * page, page, 0).unwrap().as_ptr();
        let mut resident = [false; 4];
        // SAFETY: the range was just chosen, and is this test's own.
        unsafe {
            Linux.commit(start, 4 * page).unwrap();
            start.add(page).write(7);
            Linux.populate(start.add(page), 2 * page);
            Linux.resident(start.addr(), &mut resident);
            assert_eq!(resident, [false, true, true, false]);
            assert_eq!((start.add(page).read(), start.add(2 * page).read()), (7, 0));
        }
    }

    #[test]
    fn committed_memory_is_not_for_huge_pages() {
        if !fs::exists("/sys/kernel/mm/transparent_hugepage").unwrap() {
            return;
        }
        let start = Linux.addresses(8 << 20, 1 << 21, 0).unwrap().as_ptr();
        // SAFETY: the range was just chosen, and is this test's own.
        unsafe { Linux.commit(start, 4 << 20) }.unwrap();
        let mappings = fs::read_to_string("/proc/self/smaps").unwrap();
        let (_, mapping) = mappings.split_once(&format!("{:x}-", start.addr())).unwrap();
        let flags = mapping.lines().find(|line| line.starts_with("VmFlags:")).unwrap();
        assert!(flags.contains(" nh"), "{flags}");
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
    }
}
