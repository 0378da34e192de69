//! A fake operating system. Its memory comes from the Rust heap, so Miri watches every access to
//! it; it holds the engine to the contract of [`Os`], and refuses calls on demand.

use std::alloc::{self, Layout};
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use ebbmalloc::{CLibrary, Linux, Os, RseqArea, Symbol, ThreadWords, Usage};

use crate::Faults;
use crate::watch::Watch;
use crate::words::{self, Words};

/// What memory that is not committed is filled with, so that a read of it shows.
const POISON: u8 = 0xdb;
/// What a purge that fails leaves behind: the contract leaves the contents open.
const SPOILT: u8 = 0xd5;

/// An operating system of a few MiB and no CPUs to run on, so without percpu mode: it asks for slot mode where nobody asks
/// for another.
pub struct FakeOs {
    page: usize,
    space: usize,
    /// Bytes that may be committed at a time (RLIMIT_DATA).
    data: usize,
    cpus: usize,
    /// What there is for the process, and what the group uses of it; and how often that was asked.
    memory: [AtomicU64; 2],
    memory_looks: AtomicUsize,
    environment: Vec<(&'static str, &'static str)>,
    words: Words,
    faults: Faults,
    shortages: AtomicUsize,
    purges: AtomicUsize,
    populated: AtomicUsize,
    while_populating: Option<fn()>,
    moves: AtomicUsize,
    /// Whether threads can be told to pass a barrier, if that was said.
    barrier: Option<bool>,
    barriers: AtomicUsize,
    /// All threads are in the middle of something.
    busy: AtomicBool,
    /// The clock, in milliseconds, and how far a look at it moves it.
    now: AtomicU64,
    tick: u64,
    /// Where blocks come from, once that is reserved, if somebody wants it watched.
    watch: Option<OnceLock<Watch>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    reservations: Vec<Reservation>,
    printed: String,
    calls: Vec<usize>,
    names: Vec<(usize, &'static str)>,
    c_library: Option<CLibrary>,
}

struct Reservation {
    start: *mut u8,
    layout: Layout,
    /// For each page, whether it is committed.
    committed: Vec<bool>,
}

// SAFETY: the memory belongs to the reservation alone.
unsafe impl Send for Reservation {}

impl Default for FakeOs {
    fn default() -> Self {
        Self {
            page: 4096,
            space: 24 << 20,
            data: usize::MAX,
            cpus: 2,
            memory: [u64::MAX, 0].map(AtomicU64::new),
            memory_looks: AtomicUsize::new(0),
            environment: vec![("EBB_MODE", "slot")],
            words: Words::new(),
            faults: Faults::default(),
            shortages: AtomicUsize::new(0),
            purges: AtomicUsize::new(0),
            populated: AtomicUsize::new(0),
            while_populating: None,
            moves: AtomicUsize::new(0),
            barrier: None,
            barriers: AtomicUsize::new(0),
            busy: AtomicBool::new(false),
            now: Default::default(),
            tick: 1,
            watch: None,
            state: Mutex::default(),
        }
    }
}

impl FakeOs {
    /// One with pages of `bytes`, a power of two.
    pub fn page(self, bytes: usize) -> Self {
        Self { page: bytes, ..self }
    }

    /// One that says it has `bytes` of address space left.
    pub fn space(self, bytes: usize) -> Self {
        Self { space: bytes, ..self }
    }

    /// One whose process may have `bytes` committed at a time, as RLIMIT_DATA has it.
    pub fn data(self, bytes: usize) -> Self {
        Self { data: bytes, ..self }
    }

    /// One with so many CPUs.
    pub fn cpus(self, cpus: usize) -> Self {
        Self { cpus, ..self }
    }

    /// One whose clock only moves while somebody sleeps; otherwise each look at it takes a millisecond, so
    /// that what waits for time to pass happens.
    pub fn still(self) -> Self {
        Self { tick: 0, ..self }
    }

    /// One that sees to it that the engine neither writes nor (under Miri) reads memory of free blocks of a [`Worker`](crate::Worker),
    /// given back or not. For programs all of whose blocks are those of workers, without heaps, whose records lie among blocks; and
    /// not with `EBB_CHECK` or `EBB_HARDEN`, which are about writing there.
    pub fn watched(self) -> Self {
        Self { watch: Some(OnceLock::new()), ..self }
    }

    /// One whose process may have `bytes` of memory.
    pub fn memory(self, bytes: u64) -> Self {
        self.set_memory(bytes, 0);
        self
    }

    /// From now on the process may have `bytes` of memory, of which its group uses so many.
    pub fn set_memory(&self, bytes: u64, used: u64) {
        self.memory[0].store(bytes, Ordering::Relaxed);
        self.memory[1].store(used, Ordering::Relaxed);
    }

    /// How often the engine asked how much memory there is.
    pub fn memory_looks(&self) -> usize {
        self.memory_looks.load(Ordering::Relaxed)
    }

    /// One with this environment variable set.
    pub fn environment(mut self, name: &'static str, value: &'static str) -> Self {
        self.environment.push((name, value));
        self
    }

    /// One with `EBB_MODE` as given.
    pub fn mode(self, mode: &'static str) -> Self {
        self.environment("EBB_MODE", mode)
    }

    /// One that calls this each time that memory is made resident at once.
    pub fn while_populating(self, call: fn()) -> Self {
        Self { while_populating: Some(call), ..self }
    }

    /// One where threads cannot be told to pass a barrier; or one where they need not, as none does anything meanwhile.
    pub fn barrier(self, passed: bool) -> Self {
        Self { barrier: Some(passed), ..self }
    }

    /// Whether all threads are in the middle of something, from now on.
    pub fn set_busy(&self, busy: bool) {
        self.busy.store(busy, Ordering::Relaxed);
    }

    /// How often all threads were to pass a barrier. Who asks has passed the last one.
    pub fn barriers(&self) -> usize {
        self.barriers.load(Ordering::Acquire)
    }

    /// One that refuses these calls of reserve, commit and purge, counted from 0 all together.
    pub fn refusing(self, calls: Range<usize>) -> Self {
        self.faults.refuse(calls);
        self
    }

    /// Which calls of reserve, commit, purge and move are refused.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Refuses no call from now on.
    pub fn heal(&self) {
        self.faults.heal();
    }

    /// How often reserve, commit, purge and move were called.
    pub fn calls(&self) -> usize {
        self.faults.calls()
    }

    /// How many of these were refused.
    pub fn refusals(&self) -> usize {
        self.faults.refusals()
    }

    /// Whether an environment variable is set.
    pub(crate) fn sets(&self, name: &str) -> bool {
        self.environment.iter().any(|&(found, value)| found == name && !value.is_empty())
    }

    /// How often the engine said that it is out of memory.
    pub fn shortages(&self) -> usize {
        self.shortages.load(Ordering::Relaxed)
    }

    /// How often pages were moved.
    pub fn moves(&self) -> usize {
        self.moves.load(Ordering::Relaxed)
    }

    /// How often memory was given back.
    pub fn purges(&self) -> usize {
        self.purges.load(Ordering::Relaxed)
    }

    /// Bytes that were made resident at once.
    pub fn populated(&self) -> usize {
        self.populated.load(Ordering::Relaxed)
    }

    /// How many reservations were made.
    pub fn reservations(&self) -> usize {
        self.state().reservations.len()
    }

    /// Whether a page may be accessed.
    pub fn is_committed(&self, start: *mut u8) -> bool {
        let mut state = self.state();
        let (reservation, pages) = state.pages_of(self.page, start, self.page);
        reservation.committed[pages.start]
    }

    /// Bytes that are reserved and not committed yet.
    pub fn uncommitted(&self) -> usize {
        let pages =
            |reservation: &Reservation| reservation.committed.iter().filter(|&&c| !c).count();
        self.state().reservations.iter().map(pages).sum::<usize>() * self.page
    }

    /// How many of the first `bytes` bytes of the last reservation, the region, lie in pages that do not read as zero: what a
    /// kernel would have to keep.
    pub fn resident(&self, bytes: usize) -> usize {
        let state = self.state();
        let Some(reservation) = state.reservations.last() else {
            return 0;
        };
        let touched = |&page: &usize| self.touches(reservation, page);
        (0..bytes / self.page).filter(touched).count() * self.page
    }

    /// Bytes of all committed pages that do not read as zero, whatever they are for.
    pub fn touched(&self) -> usize {
        let touched = |reservation: &Reservation| {
            let pages = 0..reservation.committed.len();
            pages.filter(|&page| self.touches(reservation, page)).count()
        };
        self.state().reservations.iter().map(touched).sum::<usize>() * self.page
    }

    /// All that was printed.
    pub fn printed(&self) -> String {
        self.state().printed.clone()
    }

    /// Whoever asks from now on was called from these addresses, the innermost first.
    pub fn set_calls(&self, calls: &[usize]) {
        self.state().calls = calls.to_vec();
    }

    /// At these addresses begin functions of these names.
    pub fn set_names(&self, names: &[(usize, &'static str)]) {
        self.state().names = names.to_vec();
    }

    /// The C library has its data there.
    pub fn set_c_library(&self, found: CLibrary) {
        self.state().c_library = Some(found);
    }

    /// The watch over what was reserved for blocks.
    pub(crate) fn watch(&self) -> Option<&Watch> {
        self.watch.as_ref()?.get()
    }

    /// Whether a page is committed and does not read as zero.
    fn touches(&self, reservation: &Reservation, page: usize) -> bool {
        let bytes = reservation.bytes(page * self.page, self.page);
        let purged = self.watch().is_some_and(|watch| watch.is_purged(bytes.as_ptr()));
        reservation.committed[page] && !purged && !is_zero(bytes)
    }

    /// Has pages read as zero, or contain what is `left` there.
    ///
    /// # Safety
    /// Nobody uses them, and the lock of the state is held.
    unsafe fn clear(&self, start: *mut u8, bytes: usize, left: Option<u8>) {
        for offset in (0..bytes).step_by(self.page) {
            // SAFETY: the caller's.
            unsafe {
                let page = start.add(offset);
                if !self.watch().is_some_and(|watch| watch.purge(page, left)) {
                    page.write_bytes(left.unwrap_or(0), self.page);
                }
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test may have ended in a panic on purpose: the state stays good for looking at.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Pages that are committed.
    fn committed(&self) -> usize {
        let of = |one: &Reservation| one.committed.iter().filter(|&&there| there).count();
        self.reservations.iter().map(of).sum()
    }

    /// The reservation that a range lies in, and the range's pages.
    fn pages_of(
        &mut self,
        page: usize,
        start: *mut u8,
        bytes: usize,
    ) -> (&mut Reservation, Range<usize>) {
        let found = self.reservations.iter_mut().find_map(|reservation| {
            let offset = start.addr().checked_sub(reservation.start.addr())?;
            (offset + bytes <= reservation.layout.size()).then_some((offset, reservation))
        });
        let (offset, reservation) = found.expect("a range outside of what was reserved");
        assert!(
            bytes > 0 && offset.is_multiple_of(page) && bytes.is_multiple_of(page),
            "a range not of whole pages"
        );
        (reservation, offset / page..(offset + bytes) / page)
    }
}

impl Reservation {
    fn bytes(&self, offset: usize, length: usize) -> &[u8] {
        assert!(offset + length <= self.layout.size());
        // SAFETY: in the reservation, and committed or poisoned, so initialised: but what is free and watched under Miri, which
        // tells if somebody looks.
        unsafe { slice::from_raw_parts(self.start.add(offset), length) }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and the engine that used it is gone.
        unsafe { alloc::dealloc(self.start, self.layout) }
    }
}

/// True where all bytes are zero. By one comparison, since Miri counts every step.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.first().is_none_or(|&first| first == 0 && bytes[1..] == bytes[..bytes.len() - 1])
}

impl Os for FakeOs {
    fn page_size(&self) -> usize {
        self.page
    }

    fn address_space_left(&self) -> usize {
        self.space
    }

    fn reserve(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        if self.faults.refuses() {
            return None;
        }
        assert_eq!(bytes % self.page, 0, "a reservation not of whole pages");
        let layout = Layout::from_size_align(bytes, align).ok()?;
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })?;
        // Loom sets up thousands of these.
        if !cfg!(loom) {
            // SAFETY: the memory is as long as said.
            unsafe { start.write_bytes(POISON, bytes) };
        }
        let committed = vec![false; bytes / self.page];
        self.state().reservations.push(Reservation { start: start.as_ptr(), layout, committed });
        // The region is what huge pages would fit in.
        if let Some(watch) = self.watch.as_ref().filter(|_| align > self.page) {
            // SAFETY: reservations live as long as the fake, and this one is not in use yet.
            watch.get_or_init(|| unsafe { Watch::new(start.as_ptr(), layout, self.page) });
        }
        Some(start)
    }

    unsafe fn commit(&self, start: *mut u8, bytes: usize) -> bool {
        if self.faults.refuses() {
            return false;
        }
        let mut state = self.state();
        let committed = state.committed() * self.page;
        let (reservation, pages) = state.pages_of(self.page, start, bytes);
        let more = reservation.committed[pages.clone()].iter().filter(|&&there| !there).count();
        if more > 0 && committed + more * self.page > self.data {
            return false;
        }
        for page in pages {
            let offset = page * self.page;
            if reservation.committed[page] {
                // Left over from a call that failed half-way: a kernel would not clear it again.
                assert!(
                    is_zero(reservation.bytes(offset, self.page)),
                    "a used page committed again"
                );
            } else {
                // SAFETY: in the reservation, and not in use before.
                unsafe { ptr::write_bytes(reservation.start.add(offset), 0, self.page) };
                reservation.committed[page] = true;
            }
        }
        true
    }

    unsafe fn decommit(&self, start: *mut u8, bytes: usize) -> bool {
        let refused = self.faults.refuses();
        let mut state = self.state();
        let (reservation, pages) = state.pages_of(self.page, start, bytes);
        let committed = &mut reservation.committed[pages];
        assert!(committed.iter().all(|&c| c), "decommitted what is not committed");
        committed.fill(refused);
        // SAFETY: in the reservation, and nobody uses the contents any more.
        unsafe { ptr::write_bytes(start, if refused { SPOILT } else { POISON }, bytes) };
        !refused
    }

    unsafe fn purge(&self, start: *mut u8, bytes: usize) -> bool {
        let refused = self.faults.refuses();
        let mut state = self.state();
        let (reservation, pages) = state.pages_of(self.page, start, bytes);
        assert!(reservation.committed[pages].iter().all(|&c| c), "purged what is not committed");
        // SAFETY: committed, and nobody uses the contents any more.
        unsafe { self.clear(start, bytes, refused.then_some(SPOILT)) };
        self.purges.fetch_add(!refused as usize, Ordering::Relaxed);
        !refused
    }

    fn watch_faults(&self, _: extern "C" fn(usize, usize)) {}

    fn populate(&self, start: *mut u8, bytes: usize) {
        let mut state = self.state();
        let (reservation, pages) = state.pages_of(self.page, start, bytes);
        assert!(reservation.committed[pages].iter().all(|&c| c), "populated what is not committed");
        drop(state);
        self.populated.fetch_add(bytes, Ordering::Relaxed);
        self.while_populating.inspect(|call| call());
    }

    unsafe fn move_pages(&self, from: *mut u8, to: *mut u8, bytes: usize) -> bool {
        if self.faults.refuses() {
            return false;
        }
        let mut state = self.state();
        for range in [from, to] {
            let (reservation, pages) = state.pages_of(self.page, range, bytes);
            assert!(reservation.committed[pages].iter().all(|&c| c), "moved what is not committed");
        }
        // SAFETY: committed, and the caller's; that they are apart is checked.
        unsafe {
            assert!(from.addr().abs_diff(to.addr()) >= bytes, "moved onto itself");
            ptr::copy_nonoverlapping(from, to, bytes);
            self.watch().inspect(|watch| watch.move_pages(from, to, bytes));
            self.clear(from, bytes, None);
        }
        self.moves.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn memory(&self) -> (u64, u64) {
        self.memory_looks.fetch_add(1, Ordering::Relaxed);
        (self.memory[0].load(Ordering::Relaxed), self.memory[1].load(Ordering::Relaxed))
    }

    fn resident(&self, address: usize, pages: &mut [bool]) {
        // Pages are zero until they are touched.
        let mut state = self.state();
        let bytes = pages.len() * self.page;
        let (reservation, range) =
            state.pages_of(self.page, ptr::without_provenance_mut(address), bytes);
        for (resident, page) in pages.iter_mut().zip(range) {
            *resident = self.touches(reservation, page);
        }
    }

    fn cpus(&self) -> usize {
        self.cpus
    }

    fn rseq(&self) -> Result<RseqArea, &'static str> {
        Err("a fake has no rseq")
    }

    fn join_rseq(&self) -> bool {
        false
    }

    fn leave_rseq(&self) {}

    fn kernel(&self) -> [u32; 2] {
        [0; 2]
    }

    fn random(&self) -> u64 {
        self.now.load(Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x0123_4567_89ab_cdef
    }

    fn thread_key(&self) -> usize {
        static KEYS: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static KEY: usize = KEYS.fetch_add(1, Ordering::Relaxed));
        KEY.with(|key| *key)
    }

    fn thread_words(&self) -> &ThreadWords {
        self.words.of_this_thread()
    }

    fn may_be(&self, words: *const ThreadWords, state: u32) -> bool {
        // Being busy is the only state that anybody asks others about.
        self.busy.load(Ordering::Relaxed) || words::may_be(words, state)
    }

    fn prepare_stops(&self) {}

    fn pass_barrier(&self) -> bool {
        self.barriers.fetch_add(1, Ordering::Release);
        // Miri has none for real threads.
        self.barrier.unwrap_or_else(|| !cfg!(any(miri, loom)) && Linux.pass_barrier())
    }

    fn watch_threads(&self, _: Option<extern "C" fn()>) -> Result<(), &'static str> {
        Ok(())
    }

    fn watch_thread(&self) -> bool {
        true
    }

    fn environment(&self, name: &str, buffer: &mut [u8]) -> Option<usize> {
        let (_, value) = self.environment.iter().rfind(|(found, _)| *found == name)?;
        let length = value.len().min(buffer.len());
        buffer[..length].copy_from_slice(&value.as_bytes()[..length]);
        Some(length)
    }

    fn print(&self, text: &[u8]) {
        self.state().printed.push_str(&String::from_utf8_lossy(text));
    }

    fn out_of_memory(&self) {
        self.shortages.fetch_add(1, Ordering::Relaxed);
    }

    fn thread_id(&self) -> u32 {
        self.thread_key() as u32
    }

    fn calls(&self, out: &mut [usize]) -> usize {
        let calls = self.state().calls.clone();
        let known = calls.len().min(out.len());
        out[..known].copy_from_slice(&calls[..known]);
        known
    }

    fn with_symbol(&self, address: usize, _: bool, work: &mut dyn FnMut(Option<Symbol>)) {
        let name = self.state().names.iter().find(|known| known.0 == address).map(|known| known.1);
        work(name.map(|name| Symbol {
            module: b"a file",
            offset: address,
            function: Some((name.as_bytes(), 0)),
        }));
    }

    fn c_library(&self) -> CLibrary {
        self.state().c_library.clone().unwrap_or(CLibrary::UNKNOWN)
    }

    fn abort(&self) -> ! {
        panic!("{}", self.printed());
    }

    fn at_fork(&self, _: extern "C" fn(), _: extern "C" fn(), _: extern "C" fn()) {}

    fn at_exit(&self, _: extern "C" fn(), _: bool) {}

    fn restart_sequences(&self) -> bool {
        false
    }

    fn is_threaded(&self, _: bool) -> bool {
        false
    }

    fn is_single(&self) -> bool {
        false
    }

    fn start_thread(&self, _: extern "C" fn()) -> bool {
        false
    }

    fn is_alone(&self) -> bool {
        false
    }

    fn sleep_ms(&self, ms: u32) {
        self.now.fetch_add(ms as u64, Ordering::Relaxed);
    }

    fn now_ms(&self) -> u64 {
        self.now.fetch_add(self.tick, Ordering::Relaxed)
    }

    fn usage(&self) -> Usage {
        Usage::default()
    }
}
