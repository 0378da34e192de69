//! The contract with the operating system: everything that the engine asks of a platform.
//!
//! `linux.rs` fulfils it for programs; the test kit fulfils it with a fake that fails on demand.
//! No function here allocates or changes `errno`, but those that say so.

use core::ptr::NonNull;

use super::hooks::Hooks;
use super::roots::CLibrary;
use super::stack::Symbol;
use super::threads::ThreadWords;

pub use core::sync::atomic::AtomicU32 as Bell;

/// Where each thread's area for restartable sequences is.
#[derive(Clone, Copy, Debug)]
pub struct RseqArea {
    /// Offset of the area from the thread pointer, in bytes; may be negative. Never 0.
    pub offset: isize,
    /// Offset from the thread pointer of the 32-bit number that picks the cache.
    pub id_at: isize,
    /// Which number that is, for people: "mm_cid" or "cpu_id".
    pub id: &'static str,
    /// Whether nobody else registers it with the kernel: [`Os::join_rseq`].
    pub ours: bool,
}

/// Offsets in an area of the fields that the engine knows (`include/uapi/linux/rseq.h`).
impl RseqArea {
    /// The CPU's number, negative in a thread that is not registered.
    pub(crate) const CPU_ID: isize = 4;
    /// Address of the descriptor of the sequence that the thread is in: the one field that is ours to write.
    pub(crate) const RSEQ_CS: isize = 8;
    /// A number for each thread of the process that is running, as low as may be (Linux 6.3).
    pub(crate) const MM_CID: isize = 24;
}

/// Why addresses could not be committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Memory is short, or a limit of the process is reached.
    Memory,
    /// Another mapping lies there.
    Addresses,
}

/// How many ranges of addresses [`choose`] tries.
const ATTEMPTS: u32 = 8;

/// Chooses `bytes` of addresses at the beginning of a page, and commits the first of them; `None` if memory is short.
pub(crate) fn choose(os: &impl Os, bytes: usize, first: usize) -> Option<NonNull<u8>> {
    for attempt in 0..ATTEMPTS {
        let start = os.addresses(bytes, os.page_size(), attempt)?;
        // SAFETY: just chosen.
        match unsafe { os.commit(start.as_ptr(), first) } {
            Ok(()) => return Some(start),
            Err(Refusal::Memory) => return None,
            Err(Refusal::Addresses) => {}
        }
    }
    None
}

/// What the engine needs from a platform. Addresses are in bytes; ranges that are passed in lie
/// in what `addresses` returned and start and end on OS pages.
pub trait Os: Sync {
    /// What the process does for the one engine that lies on this; none in tests, where there are many.
    fn hooks(&self) -> Option<&'static Hooks> {
        None
    }

    /// Why this engine may not serve the `malloc` of its process, where that is so.
    fn objection(&self) -> Option<&'static str> {
        None
    }

    /// There is none any more, since another one serves that.
    fn withdraw_objection(&self) {}

    /// Bytes in an OS page.
    fn page_size(&self) -> usize;

    /// The most bytes that it makes sense to ask [`Os::addresses`] for.
    fn address_space(&self) -> usize;

    /// Chooses `bytes` of addresses at a multiple of `align`, a power of two, that the engine may commit, and that are likely
    /// to stay free until then. Nothing is mapped there: another mapping may be there, or come. `attempt` counts
    /// from 0, and each is likely to have another answer.
    fn addresses(&self, bytes: usize, align: usize, attempt: u32) -> Option<NonNull<u8>>;

    /// Maps chosen addresses, readable and writable; the range reads as zero. The kernel backs it page by page, not by
    /// huge pages of its own accord.
    ///
    /// # Errors
    /// Nothing is mapped then.
    ///
    /// # Safety
    /// The range was chosen and is not committed.
    unsafe fn commit(&self, start: *mut u8, bytes: usize) -> Result<(), Refusal>;

    /// Commits a range by making the mapping before it longer, where a process has as many mappings as it may have. False if
    /// that is not possible.
    ///
    /// # Safety
    /// As for [`Os::commit`], and the page before the range is committed.
    unsafe fn extend(&self, _start: *mut u8, _bytes: usize) -> bool {
        false
    }

    /// Undoes [`Os::commit`]: an access to the range is refused. What was there is lost. False if the kernel
    /// refuses, and then the range is as it was but for its contents, which are unspecified.
    ///
    /// # Safety
    /// The range is committed, and nobody uses it any more.
    unsafe fn decommit(&self, start: *mut u8, bytes: usize) -> bool;

    /// Whether [`Os::hide`] leaves mappings whole here. Tried with a page that is committed and that nobody uses; what was there is
    /// lost.
    fn can_hide(&self, _page: *mut u8) -> bool {
        false
    }

    /// Puts part of a committed range out of reach, if possible so that [`Os::show`] always succeeds. As [`Os::decommit`].
    ///
    /// # Safety
    /// As for that.
    unsafe fn hide(&self, start: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller's.
        unsafe { self.decommit(start, bytes) }
    }

    /// Undoes that; the range reads as zero. False if the kernel refuses.
    ///
    /// # Safety
    /// The range was hidden.
    unsafe fn show(&self, start: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller's.
        unsafe { self.commit(start, bytes) }.is_ok()
    }

    /// Gives the memory behind a committed range back; it reads as zero afterwards. False if the
    /// kernel refuses, and then the contents are unspecified.
    ///
    /// # Safety
    /// Nobody uses the range's contents any more.
    unsafe fn purge(&self, start: *mut u8, bytes: usize) -> bool;

    /// Whether a committed page holds anything but zeros.
    ///
    /// # Safety
    /// Nobody uses the page.
    unsafe fn has_data(&self, page: *const u8) -> bool {
        let words = page.cast::<u64>();
        // SAFETY: the caller's.
        (0..self.page_size() / size_of::<u64>()).any(|word| unsafe { words.add(word).read() } != 0)
    }

    /// Makes a committed range resident at once, which is quicker than page by page as it is touched. What it contains
    /// stays. Does nothing where the kernel cannot (before Linux 5.14).
    fn populate(&self, start: *mut u8, bytes: usize);

    /// Moves the memory behind a committed range to the beginning of another of `room` bytes, whose contents are lost and
    /// which reads as zero behind that; the first range is not committed any more. The kernel keeps the second
    /// apart from its neighbours, as a mapping of its own. False where that is not possible, and then nothing has
    /// happened, but that the contents of the second range are lost.
    ///
    /// # Safety
    /// The ranges are committed and apart, and nobody else uses them; the first lies in one mapping, and is not longer.
    unsafe fn move_pages(&self, from: *mut u8, to: *mut u8, bytes: usize, room: usize) -> bool;

    /// How much memory this process may have, by its control groups or because the machine has no more, in
    /// bytes, as far as that is known. Reads files: for set-up.
    fn memory_limit(&self) -> Option<u64>;

    /// Sets which of the pages from an address on are resident: all of them lie in what was reserved. Where
    /// that cannot be told, none is.
    fn resident(&self, address: usize, pages: &mut [bool]);

    /// How many CPUs there can be; ids of virtual CPUs are below it.
    fn cpus(&self) -> usize;

    /// The rseq area, or why there is none that can be used.
    fn rseq(&self) -> Result<RseqArea, &'static str>;

    /// Registers the calling thread's area, if that is ours. False where the kernel refuses. The thread is
    /// watched.
    fn join_rseq(&self) -> bool;

    /// Undoes that, before the thread exits.
    fn leave_rseq(&self);

    /// The kernel's version: its first two numbers.
    fn kernel(&self) -> [u32; 2];

    /// Bits that nobody can guess, as far as the kernel has such.
    fn random(&self) -> u64;

    /// A number that tells the calling thread from others alive. Cheap; not necessarily dense.
    fn thread_key(&self) -> usize;

    /// The words of the calling thread. Cheap, also in a signal handler.
    fn thread_words(&self) -> &ThreadWords;

    /// Whether a thread may be in this state. False where its words, which are these, say another, and then what it did before it stored that
    /// is seen afterwards; and where they are gone, as the thread has ended. What is said of one that has ended, and in
    /// place of whose words there is something else, means nothing.
    fn may_be(&self, words: *const ThreadWords, state: u32) -> bool;

    /// Whether [`pass_barrier`](Self::pass_barrier) and [`restart_sequences`](Self::restart_sequences) can be had
    /// now. Makes no system call, nor do they.
    fn can_stop(&self) -> bool;

    /// Has all threads of this process pass a barrier: all that such a thread did before is seen afterwards, and what it reads after it is
    /// no older than what the caller stored before. False where that cannot be.
    fn pass_barrier(&self) -> bool;

    /// Prepares for threads to be watched, and has `exit` called in each of those when it exits, at last with
    /// true; or why that is not possible.
    fn watch_threads(&self, exit: Option<extern "C" fn(bool)>) -> Result<(), &'static str>;

    /// Creates the key that tells of threads' exits, if threads are to be watched: early, before
    /// the program creates keys of its own. May allocate.
    fn claim_thread_key(&self);

    /// Watches the calling thread. False where memory is too short for that. May allocate.
    fn watch_thread(&self) -> bool;

    /// Has the kernel start over, on all CPUs, what restartable sequences are in progress: afterwards no
    /// thread of this process is in one that began before. False where it cannot.
    fn restart_sequences(&self) -> bool;

    /// Whether the calling thread is the first of the process.
    fn is_first(&self) -> bool;

    /// True only if this process has one thread for certain.
    fn is_single(&self) -> bool;

    /// Runs `work` in a thread of its own, to which no signal goes but those that its own instructions raise. A handle
    /// of the thread, for [`Os::join_thread`]; none where there can be no thread. May allocate.
    fn start_thread(&self, work: extern "C" fn()) -> Option<usize>;

    /// Waits until a thread has ended that [`Os::start_thread`] returned. To be called once for each.
    fn join_thread(&self, thread: usize);

    /// Waits so many milliseconds.
    fn sleep_ms(&self, ms: u32);

    /// The same, but no longer than until [`Os::ring`] is called, or was. It may end early.
    fn doze_ms(&self, bell: &Bell, ms: u32);

    /// Wakes the thread that dozes with this bell.
    fn ring(&self, bell: &Bell);

    /// Milliseconds since some moment; cheap, so it may move in steps of a few.
    fn now_ms(&self) -> u64;

    /// Copies the environment variable `name` into `buffer`; its length there, cut to fit.
    fn environment(&self, name: &str, buffer: &mut [u8]) -> Option<usize>;

    /// Writes to standard error, as far as possible.
    fn print(&self, text: &[u8]);

    /// Told before null is returned for want of memory: sets `errno` to ENOMEM.
    fn out_of_memory(&self);

    /// The kernel's number of the calling thread.
    fn thread_id(&self) -> u32;

    /// Writes the calls that led here, the innermost first, as addresses in the calling instructions. How many; none
    /// where that cannot be told.
    fn calls(&self, out: &mut [usize]) -> usize;

    /// Calls `work` with what lies at an address of code, as far as that is known: where it `may_read` files, also by names that are
    /// for debuggers.
    fn with_symbol(&self, address: usize, may_read: bool, work: &mut dyn FnMut(Option<Symbol>));

    /// Where the C library has its data, as far as that is known. Takes locks of the loader.
    fn c_library(&self) -> CLibrary {
        CLibrary::UNKNOWN
    }

    /// Has this called when an access is refused (SIGSEGV), with its address and that of the instruction, before
    /// what would have happened without. Programs may put handlers of their own in its place.
    fn watch_faults(&self, call: extern "C" fn(usize, usize));

    /// Ends the process abnormally (SIGABRT).
    fn abort(&self) -> !;

    /// Has these called around every `fork` of this process: before it, and after it in the
    /// parent and in the child.
    fn at_fork(&self, before: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn());

    /// Has this called when the process exits normally. With `lasting`, messages are read even where the program has
    /// closed its standard error by then, which takes a descriptor.
    fn at_exit(&self, call: extern "C" fn(), lasting: bool);

    /// What the kernel accounts to this process since it started.
    fn usage(&self) -> Usage;
}

/// What the kernel accounts to a process.
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
    /// The most resident memory so far, in bytes.
    pub peak_resident: u64,
}
