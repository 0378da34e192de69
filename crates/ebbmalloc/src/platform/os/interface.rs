//! Declares the contract with the operating system: everything that the engine asks of a platform.
//!
//! `mod.rs` names the files that implement it for programs; the test kit implements it by a fake
//! that fails on demand. No function here allocates or changes `errno`, except those whose comments
//! say so.

use core::ffi::CStr;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use super::c_library::CLibrary;
use super::hooks::Hooks;
use super::symbol::Symbol;
use super::thread_words::ThreadWords;
use crate::platform::kernel::bytes::has_data;
use crate::platform::kernel::futex::{futex_wait, futex_wake};
use crate::platform::tuning::RANGE_ATTEMPTS_MAX;

/// The word on which a thread waits: 0 until another wakes it ([`OsThreads::wait_ms`]).
pub use core::sync::atomic::AtomicU32 as WakeFlag;

/// Location of each thread's area for restartable sequences (rseq).
#[derive(Clone, Copy, Debug)]
pub struct RseqArea {
    /// Offset of the area from the thread pointer in bytes. May be negative, but never 0.
    pub offset: isize,
    /// Offset from the thread pointer, in bytes, of the 32-bit number that selects the cache.
    pub id_at: isize,
    /// The name of that number, for messages: "mm_cid" or "cpu_id".
    pub id: &'static str,
    /// Whether the engine registers the area with the kernel ([`OsThreads::join_rseq`]), and not
    /// the C library.
    pub ours: bool,
}

/// Offsets of the fields that the engine uses, in bytes from the start of an area
/// (`include/uapi/linux/rseq.h`).
impl RseqArea {
    /// The number of the CPU. Negative in a thread that is not registered.
    pub(crate) const CPU_ID: isize = 4;
    /// The address of the current sequence's descriptor: the only field that the engine writes.
    #[allow(dead_code, reason = "not used where there are no sequences")]
    pub(crate) const RSEQ_CS: isize = 8;
    /// The number of the virtual CPU: each running thread of the process has one of its own, as
    /// low as possible (Linux 6.3).
    #[allow(dead_code, reason = "not used where there are no sequences")]
    pub(crate) const MM_CID: isize = 24;
}

/// Why a range was not committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Memory is short, or the process has reached a limit.
    Memory,
    /// Another mapping lies in the range.
    Addresses,
}

/// Why pages did not move, or not all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotMoved {
    /// Bytes that have moved nevertheless, from the beginning on.
    pub moved_bytes: usize,
    /// Why the rest has not.
    pub refusal: Refusal,
}

impl From<Refusal> for NotMoved {
    /// Nothing has moved.
    fn from(refusal: Refusal) -> Self {
        Self { moved_bytes: 0, refusal }
    }
}

/// Chooses a range of `bytes` addresses that starts on a page, and commits its first
/// `commit_bytes`. `None` if memory is short, or other mappings lie in all ranges that were tried.
pub(crate) fn choose(os: &impl OsMemory, bytes: usize, commit_bytes: usize) -> Option<NonNull<u8>> {
    for attempt in 0..RANGE_ATTEMPTS_MAX {
        let start = os.addresses(bytes, os.page_size(), attempt)?;
        // SAFETY: the range was just chosen, and is not committed.
        match unsafe { os.commit(start.as_ptr(), commit_bytes) } {
            Ok(()) => return Some(start),
            Err(refusal) => {
                // SAFETY: the commit has failed, and only this function knows the range.
                unsafe { os.release(start.as_ptr()) };
                if refusal == Refusal::Memory {
                    return None;
                }
            }
        }
    }
    None
}

/// A function that takes the next bytes of a file.
pub type Writer<'a> = &'a mut dyn FnMut(&[u8]);

/// A platform for an engine: every type that implements the four parts.
pub trait Os: OsMemory + OsThreads + OsProcess + OsReports {}

impl<T: OsMemory + OsThreads + OsProcess + OsReports> Os for T {}

/// The memory of a platform: addresses and pages. Ranges passed to these functions lie in a range
/// that [`OsMemory::addresses`] returned, and start and end on OS pages.
pub trait OsMemory: Sync {
    /// Bytes in an OS page.
    fn page_size(&self) -> usize;

    /// The most bytes of addresses worth asking [`OsMemory::addresses`] for.
    fn address_space(&self) -> usize;

    /// Chooses a range of `bytes` addresses at a multiple of `align`, a power of two, for the
    /// engine to commit. Maps nothing: the range is likely to be free and stay so, but another
    /// mapping may lie there, or come. `attempt` counts from 0; each attempt probably returns
    /// another range.
    fn addresses(&self, bytes: usize, align: usize, attempt: u32) -> Option<NonNull<u8>>;

    /// Gives a chosen range up, from its start: for a platform on which choosing takes something.
    ///
    /// # Safety
    /// None of the range is committed, and no code will commit any of it.
    unsafe fn release(&self, _start: *mut u8) {}

    /// Maps a chosen range, readable and writable. It reads as zero. The kernel backs it page by
    /// page, and not with huge pages of its own accord.
    ///
    /// # Errors
    /// On an error nothing is mapped.
    ///
    /// # Safety
    /// The range was chosen and is not committed.
    unsafe fn commit(&self, start: *mut u8, bytes: usize) -> Result<(), Refusal>;

    /// Commits a range by growing the mapping right before it: for a process that may not make more
    /// mappings. False if that is not possible.
    ///
    /// # Safety
    /// The range was chosen and is not committed, and the page before it is committed.
    unsafe fn extend(&self, _start: *mut u8, _bytes: usize) -> bool {
        false
    }

    /// Undoes [`OsMemory::commit`]: the contents of the range are lost, and an access to it faults.
    /// False if the kernel refuses: then the range stays as it was.
    ///
    /// # Safety
    /// The range is committed, and no code uses it any more.
    unsafe fn decommit(&self, start: *mut u8, bytes: usize) -> bool;

    /// Whether [`OsMemory::hide`] works. Tries it on `_page`, which is committed and unused; its
    /// contents are lost.
    fn can_hide(&self, _page: *mut u8) -> bool {
        false
    }

    /// Makes accesses to part of a mapping fault without splitting it. The contents are lost. False
    /// if the kernel refuses: then the range stays accessible, with unspecified contents.
    ///
    /// # Safety
    /// The range is committed, and no code uses it any more.
    unsafe fn hide(&self, _start: *mut u8, _bytes: usize) -> bool {
        false
    }

    /// Undoes [`OsMemory::hide`]: the range reads as zero. False if the kernel refuses, as where
    /// nothing is mapped. Only where [`OsMemory::can_hide`] said so.
    ///
    /// # Safety
    /// The range is hidden or not committed.
    unsafe fn show(&self, _start: *mut u8, _bytes: usize) -> bool {
        false
    }

    /// Purges a committed range: returns its memory to the kernel. It reads as zero afterwards.
    /// False if the kernel refuses: then the contents are unspecified.
    ///
    /// # Safety
    /// The range is committed, and no code uses its contents any more.
    unsafe fn purge(&self, start: *mut u8, bytes: usize) -> bool;

    /// Whether a committed page has a byte that is not zero.
    ///
    /// # Safety
    /// The page is committed, and no other code uses it.
    unsafe fn has_data(&self, page: *const u8) -> bool {
        // SAFETY: the caller guarantees that the whole page is readable and unused.
        unsafe { has_data(page, self.page_size()) }
    }

    /// Whether the kernel may have huge pages of this size for programs that ask for them.
    fn has_huge_pages(&self, _bytes: usize) -> bool {
        false
    }

    /// Asks the kernel to back a committed range by a huge page of that size. It reads as zero
    /// before and after. Returns the nanoseconds that it took, by a clock that may tick some
    /// milliseconds apart; `None` if it refuses. Otherwise it may still give small pages.
    ///
    /// # Safety
    /// No page of the range was used since it was committed or purged, and no code uses it now.
    unsafe fn back_by_huge_page(&self, _start: *mut u8, _bytes: usize) -> Option<u64> {
        None
    }

    /// Says whether the kernel may back a committed range by huge pages as it is touched. False if
    /// it refuses.
    ///
    /// # Safety
    /// The range is committed.
    unsafe fn allow_huge_pages(&self, _start: *mut u8, _bytes: usize, _allowed: bool) -> bool {
        false
    }

    /// Moves the pages of a committed range of `bytes` to the beginning of another of `to_bytes`.
    /// The rest of the second range reads as zero. Afterwards the first range is not committed,
    /// and the second is a mapping of its own, apart from its neighbours.
    ///
    /// If the kernel refuses, the beginning of the range may have moved, where the program divided
    /// its mapping. The contents of the rest of the second range are lost; and with
    /// [`Refusal::Addresses`] that rest is not committed any more.
    ///
    /// # Safety
    /// Both ranges are committed, do not overlap, and are used by no other code. As far as the
    /// caller knows, the first lies in one mapping. It is no longer than the second.
    unsafe fn move_pages(
        &self,
        _from: *mut u8,
        _to: *mut u8,
        _bytes: usize,
        _to_bytes: usize,
    ) -> Result<(), NotMoved> {
        Err(Refusal::Memory.into())
    }

    /// The most memory that this process may have, in bytes: the limit of its control groups, or
    /// the memory of the machine. `None` if neither is known. Reads files, so only set-up calls
    /// it.
    fn memory_limit(&self) -> Option<u64>;

    /// The percentage of that limit which is taken, by whatever the limit counts: also by memory
    /// that no allocator holds, and by other processes. Of several limits, that of the one which
    /// is nearest. `None` if unknown. Reads files.
    fn memory_taken_percent(&self) -> Option<u64> {
        None
    }

    /// Sets which of the pages from `address` on are resident: none, if the kernel does not tell.
    /// All pages lie in a range that was chosen.
    fn resident(&self, address: usize, pages: &mut [bool]);
}

/// The threads of a platform, their restartable sequences, and barriers between them.
pub trait OsThreads: Sync {
    /// The number of CPUs that the machine can have. Numbers of virtual CPUs are below it.
    fn cpus(&self) -> usize;

    /// The rseq area, or the reason why there is none to use.
    fn rseq(&self) -> Result<RseqArea, &'static str>;

    /// Registers the calling thread's area with the kernel, where [`RseqArea::ours`]. False if the
    /// kernel refuses. The thread is watched already ([`OsThreads::watch_thread`]).
    fn join_rseq(&self) -> bool {
        false
    }

    /// Undoes [`OsThreads::join_rseq`], before the thread exits.
    fn leave_rseq(&self) {}

    /// A number that differs from those of all other living threads. Cheap; not necessarily dense.
    fn thread_token(&self) -> usize;

    /// The kernel's number of the calling thread.
    fn thread_id(&self) -> u32;

    /// The words of the calling thread. Cheap, also in a signal handler.
    fn thread_words(&self) -> &ThreadWords;

    /// Whether the thread with these words may be in state `state`. If false, the words hold
    /// another state, or are unmapped since the thread ended. The caller then sees all that the
    /// thread did before it stored that other state. If a thread has ended and other data replaced
    /// its words, the answer is arbitrary.
    fn may_be(&self, words: *const ThreadWords, state: u32) -> bool;

    /// Whether the calling thread is the first of the process.
    fn is_first(&self) -> bool;

    /// Whether this process certainly has one thread only.
    fn is_single(&self) -> bool;

    /// Whether the process has, or had, other threads than its first, as far as is known.
    fn had_threads(&self) -> bool {
        false
    }

    /// Prepares to watch threads. Each watched thread calls `exit` when it exits, the last time
    /// with true. An error is the reason why threads cannot be watched.
    fn watch_threads(&self, exit: Option<extern "C" fn(bool)>) -> Result<(), &'static str>;

    /// Creates the key whose destructor runs as threads exit, if threads will be watched. Called
    /// early, before the program creates keys of its own. May allocate.
    fn create_thread_key(&self) {}

    /// Watches the calling thread. False if memory is too short. May allocate.
    fn watch_thread(&self) -> bool;

    /// Whether [`OsThreads::stop_others`] works now. In programs, only while there are no others:
    /// membarrier(2) would do, but a filter of system calls may kill for it, and no call that
    /// filters allow tells whether there is one (decisions/0032).
    fn can_stop(&self) -> bool {
        self.is_single()
    }

    /// Makes every other thread of this process pass a memory barrier. Afterwards the caller sees
    /// all that a thread did before its barrier; a thread's later reads are no older than the
    /// caller's earlier stores. With `sequences`, no thread is inside a restartable sequence any
    /// more that began before. False if that fails. In programs there is nothing to do.
    fn stop_others(&self, _sequences: bool) -> bool {
        true
    }

    /// Runs `work` in a new thread, which takes only signals that instructions raise, and of these
    /// only what the caller does not block. Returns a handle for [`OsThreads::join_thread`], or
    /// `None` if no thread can be started. May allocate.
    fn start_thread(&self, work: extern "C" fn()) -> Option<usize>;

    /// Waits for the end of a thread that [`OsThreads::start_thread`] returned. Called once for
    /// each thread.
    fn join_thread(&self, thread: usize);

    /// Sleeps for `ms` milliseconds.
    fn sleep_ms(&self, ms: u32);

    /// Sleeps for `ms` milliseconds, or until [`OsThreads::wake`] sets the flag, which may have
    /// happened before. May return early.
    fn wait_ms(&self, flag: &WakeFlag, ms: u32) {
        futex_wait(flag, 0, Some(ms));
    }

    /// Sets a flag, and wakes the thread that waits for it.
    fn wake(&self, flag: &WakeFlag) {
        flag.store(1, Ordering::Release);
        futex_wake(flag);
    }
}

/// The process on a platform: its hooks, forks and exit, its environment, clock and random numbers.
pub trait OsProcess: Sync {
    /// The hooks by which the process serves the one engine on this platform. `None` in tests,
    /// where a process has many engines.
    fn hooks(&self) -> Option<&'static Hooks> {
        None
    }

    /// The sanitizer because of which this engine must not serve the `malloc` of its process.
    fn objection(&self) -> Option<&'static str> {
        None
    }

    /// Withdraws the [objection](OsProcess::objection): the sanitizer's allocator serves `malloc`.
    fn withdraw_objection(&self) {}

    /// The first two numbers of the kernel's version.
    fn kernel(&self) -> [u32; 2];

    /// Unpredictable bits from the kernel; predictable ones if the kernel has none.
    fn random(&self) -> u64;

    /// Milliseconds since an arbitrary moment. Cheap, so it may advance in steps of some
    /// milliseconds.
    fn now_ms(&self) -> u64;

    /// Passes each environment variable whose name begins with `prefix` to `work`, as "NAME=VALUE"
    /// without the prefix, cut to 500 bytes. None in a set-user-ID program, whose caller may not
    /// steer it.
    fn for_each_variable(&self, prefix: &str, work: &mut dyn FnMut(&[u8]));

    /// Copies the environment variable `name` into `buffer`, cut to fit. Returns its length there.
    fn environment(&self, name: &str, buffer: &mut [u8]) -> Option<usize> {
        let mut found = None;
        self.for_each_variable(name, &mut |rest| {
            if let ([b'=', value @ ..], None) = (rest, found) {
                let copied = buffer.iter_mut().zip(value);
                found = Some(copied.map(|(to, from)| *to = *from).count());
            }
        });
        found
    }

    /// The options that the program has in its symbol `ebb_options`: names and words, with commas
    /// between. Empty without that symbol.
    fn options_in_code(&self) -> &'static [u8] {
        b""
    }

    /// Sets `errno` to ENOMEM. Called before an allocation returns null for lack of memory. Rust's
    /// allocators tell by null alone.
    fn out_of_memory(&self) {}

    /// Calls these around every `fork` of this process: before it, and after it in the parent and
    /// in the child.
    fn at_fork(&self, before: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn());

    /// Calls `call` when the process exits normally.
    fn at_exit(&self, call: extern "C" fn());
}

/// The reports on a platform: messages, stacks, symbols, faults and usage.
pub trait OsReports: Sync {
    /// Writes to standard error, as much as possible.
    fn print(&self, text: &[u8]);

    /// Notes which file standard error is, at the start. With `duplicated` it keeps a duplicate, so
    /// that messages at exit arrive even if the program has closed it by then.
    fn keep_stderr(&self, _duplicated: bool) {}

    /// From now on, [`OsReports::print`] writes to the file of [`OsReports::keep_stderr`] only,
    /// whatever file of the program has its number by then: for messages at exit.
    fn compare_stderr(&self) {}

    /// Writes the stack of calls, innermost first, as addresses inside the calling instructions.
    /// Returns their number: 0 if the stack cannot be read.
    fn calls(&self, _out: &mut [usize]) -> usize {
        0
    }

    /// As [`OsReports::calls`], for heap profiles: in the midst of any allocation, so it takes no
    /// lock that the program may hold.
    fn profile_calls(&self, out: &mut [usize]) -> usize {
        self.calls(out)
    }

    /// Calls `work` with the symbol at an address of code, if it is known. Looks in symbol tables
    /// for debuggers too, if it `may_read` files.
    fn with_symbol(&self, _address: usize, _may_read: bool, work: &mut dyn FnMut(Option<Symbol>)) {
        work(None);
    }

    /// The location of the C library's data, as far as it is known. Takes locks of the loader.
    fn c_library(&self) -> CLibrary {
        CLibrary::UNKNOWN
    }

    /// Makes a file of all that `work` passes to its argument, in place of one that exists. Returns
    /// false if not all could be written.
    fn write_file(&self, _path: &CStr, _work: &mut dyn FnMut(Writer)) -> bool {
        false
    }

    /// Passes the text of `/proc/self/maps` to `out`, piece by piece.
    fn mappings(&self, _out: &mut dyn FnMut(&[u8])) {}

    /// The path by which this program was started; empty if it is unknown.
    fn program(&self) -> &'static [u8] {
        b""
    }

    /// The number of this process.
    fn process_id(&self) -> u32 {
        0
    }

    /// Calls `call` in a handler of this signal.
    fn watch_signal(&self, _signal: i32, _call: extern "C" fn()) {}

    /// Calls `call` on every access that faults, with the addresses of the access and of
    /// the instruction. Afterwards the previous action takes place. Programs may replace the
    /// handler; called again, this may take its place once.
    fn watch_faults(&self, call: extern "C" fn(usize, usize));

    /// Ends the process with an exit code, and runs nothing of it any more.
    fn exit(&self, code: i32) -> !;

    /// Ends the process abnormally (SIGABRT).
    fn abort(&self) -> !;

    /// The resources that this process has used since it started.
    fn usage(&self) -> Usage;
}

/// The resources that a process has used, by the kernel's account.
#[derive(Clone, Copy, Default, Debug)]
pub struct Usage {
    /// Time since the process started, in microseconds.
    pub elapsed_us: u64,
    /// CPU time in user mode, in microseconds.
    pub user_us: u64,
    /// CPU time in the kernel, in microseconds.
    pub system_us: u64,
    /// Page faults served without reading from storage.
    pub minor_faults: u64,
    /// Page faults that read from storage.
    pub major_faults: u64,
    /// Resident memory now, in bytes.
    pub resident: u64,
    /// The high-water mark of resident memory, in bytes.
    pub peak_resident: u64,
}
