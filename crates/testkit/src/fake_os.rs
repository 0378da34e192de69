//! A fake operating system. Its memory comes from the Rust heap, so Miri watches every access to
//! it; it holds the engine to the contract of [`Os`](ebbmalloc::internals::Os), and refuses calls
//! on demand.

use std::alloc::{self, Layout};
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use ebbmalloc::internals::{
    CLibrary, NotMoved, OsMemory, OsProcess, OsReports, OsThreads, Refusal, RseqArea, Symbol,
    ThreadWords, Usage, WakeFlag,
};

use crate::watch::Watch;
use crate::words::{self, Words};
use crate::{Faults, fake_stack, membarrier};

/// Fills memory that is not committed, so that a read of it shows.
const POISON: u8 = 0xdb;
/// Fills memory whose purge failed: the contract leaves its contents unspecified.
const SPOILT: u8 = 0xd5;

/// An operating system with a few MiB of memory. It has no rseq, so no percpu mode: the mode is
/// slot unless a test sets another.
pub struct FakeOs {
    page: usize,
    space: usize,
    /// Bytes that may be committed at a time (RLIMIT_DATA).
    data: usize,
    cpus: usize,
    /// The memory limit of the process, if known.
    memory: Option<u64>,
    taken_percent: AtomicU64,
    environment: Vec<(&'static str, &'static str)>,
    options_in_code: &'static str,
    words: Words,
    faults: Faults,
    shortages: AtomicUsize,
    purges: AtomicUsize,
    /// The nanoseconds that a huge page takes; `None` if there are none.
    huge_page_ns: Option<u64>,
    huge_pages: Mutex<Vec<Range<usize>>>,
    has_huge_pages: bool,
    /// Where the kernel may give huge pages as memory is touched.
    advised: Mutex<Vec<Range<usize>>>,
    /// Huge pages of which a part was purged, and not the whole.
    broken: AtomicUsize,
    moves: AtomicUsize,
    /// What another thread does in the middle of the next move of pages.
    in_move: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Whether threads can be made to pass a barrier; `None` for the host's answer.
    barrier: Option<bool>,
    barriers: AtomicUsize,
    /// Whether all threads count as in the middle of an operation.
    busy: AtomicBool,
    /// The clock, in milliseconds.
    now_ms: AtomicU64,
    /// Milliseconds by which each read of the clock advances it.
    tick_ms: u64,
    /// Ranges of the region, in bytes from its start, in which other mappings lie.
    neighbours: Mutex<Vec<Range<usize>>>,
    /// Addresses that are never purged, as if the program had locked them.
    locked: Mutex<Vec<Range<usize>>>,
    /// Whether the next move of pages is refused, and its target unmapped.
    loses_target: AtomicBool,
    moves_partly: AtomicUsize,
    /// Number of further regions in which another mapping lies.
    taken_regions: AtomicUsize,
    /// The watch over the region, if the test wants one, once the region is chosen.
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
    /// For each page, the number of the move that brought it there, 0 for none. The kernel has one
    /// mapping for each move.
    moves: Vec<usize>,
    /// Whether this is the region, which blocks come from.
    is_region: bool,
    /// Whether another mapping lies in it.
    is_taken: bool,
}

// SAFETY: the reservation alone owns its memory.
unsafe impl Send for Reservation {}

impl Default for FakeOs {
    fn default() -> Self {
        Self {
            page: 4096,
            space: 24 << 20,
            data: usize::MAX,
            cpus: 2,
            memory: None,
            taken_percent: AtomicU64::new(0),
            environment: vec![("EBB_MODE", "slot")],
            options_in_code: "",
            words: Words::new(),
            faults: Faults::default(),
            shortages: AtomicUsize::new(0),
            purges: AtomicUsize::new(0),
            huge_page_ns: None,
            huge_pages: Mutex::default(),
            has_huge_pages: true,
            advised: Mutex::default(),
            broken: AtomicUsize::new(0),
            moves: AtomicUsize::new(0),
            in_move: Mutex::default(),
            barrier: None,
            barriers: AtomicUsize::new(0),
            busy: AtomicBool::new(false),
            now_ms: AtomicU64::new(0),
            tick_ms: 1,
            neighbours: Mutex::default(),
            locked: Mutex::default(),
            loses_target: AtomicBool::new(false),
            moves_partly: AtomicUsize::new(0),
            taken_regions: AtomicUsize::new(0),
            watch: None,
            state: Mutex::default(),
        }
    }
}

impl FakeOs {
    /// With pages of `bytes`, a power of two.
    pub fn page(self, bytes: usize) -> Self {
        Self { page: bytes, ..self }
    }

    /// With `bytes` of address space.
    pub fn space(self, bytes: usize) -> Self {
        Self { space: bytes, ..self }
    }

    /// With a limit of `bytes` that may be committed at a time, as by RLIMIT_DATA.
    pub fn data(self, bytes: usize) -> Self {
        Self { data: bytes, ..self }
    }

    /// With this many CPUs.
    pub fn cpus(self, cpus: usize) -> Self {
        Self { cpus, ..self }
    }

    /// With a clock that only sleeping advances. By default each read of the clock advances it by a
    /// millisecond, so that waits for a time end.
    pub fn still(self) -> Self {
        Self { tick_ms: 0, ..self }
    }

    /// With a watch that panics if the engine writes to memory of free blocks of a
    /// [`Worker`](crate::Worker), purged or not. Under Miri, reads are noticed, too.
    ///
    /// All blocks must be those of workers. It does not work with heaps, whose records lie among
    /// blocks, nor with `EBB_CHECK` and `EBB_HARDEN`, which write to free blocks.
    pub fn watched(self) -> Self {
        Self { watch: Some(OnceLock::new()), ..self }
    }

    /// With huge pages, each of which takes `ns` nanoseconds.
    pub fn huge_pages_in(self, ns: u64) -> Self {
        Self { huge_page_ns: Some(ns), ..self }
    }

    /// A system whose setting is that no program gets huge pages. The kernel refuses no request,
    /// and gives small pages.
    pub fn no_huge_pages(self) -> Self {
        Self { huge_page_ns: Some(0), has_huge_pages: false, ..self }
    }

    /// The huge pages that the engine has: those that it got, and of which nothing was purged.
    pub fn huge_pages(&self) -> Vec<Range<usize>> {
        self.huge_pages.lock().unwrap().clone()
    }

    /// Where the program gets huge pages as it touches the memory, in no order.
    pub fn advised(&self) -> Vec<Range<usize>> {
        self.advised.lock().unwrap().clone()
    }

    /// Notes that these addresses leave their mapping.
    fn leave_mapping(&self, start: *mut u8, bytes: usize) {
        let left = start.addr()..start.addr() + bytes;
        // Advice divides a mapping, and stays with pages that move.
        let is_met = |advised: &Range<usize>| advised.start < left.end && left.start < advised.end;
        assert!(!self.advised.lock().unwrap().iter().any(is_met), "moved or unmapped with advice");
        let mut pages = self.huge_pages.lock().unwrap();
        pages.retain(|page| page.end <= left.start || left.end <= page.start);
    }

    /// The number of huge pages of which a part was purged, and not the whole.
    pub fn broken_huge_pages(&self) -> usize {
        self.broken.load(Ordering::Relaxed)
    }

    /// With `bytes` of memory for the process.
    pub fn memory(self, bytes: u64) -> Self {
        Self { memory: Some(bytes), ..self }
    }

    /// Puts another mapping in these bytes of the region, counted from its start.
    pub fn occupy(&self, bytes: Range<usize>) {
        self.neighbours.lock().unwrap().push(bytes);
    }

    /// Refuses from now on to purge what meets these addresses: as kernels before Linux 5.18 do
    /// where memory is locked.
    pub fn lock_memory(&self, addresses: Range<usize>) {
        self.locked.lock().unwrap().push(addresses);
    }

    /// Puts another mapping in the ranges that the engine chooses for the first `regions` regions.
    pub fn occupy_first(&self, regions: usize) {
        self.taken_regions.store(regions, Ordering::Relaxed);
    }

    /// The offset of an address in the region, in bytes from its start.
    pub fn region_offset(&self, address: *mut u8) -> usize {
        address.addr() - self.region_address(0).addr()
    }

    /// The address at this offset in the region.
    pub fn region_address(&self, offset: usize) -> *mut u8 {
        let state = self.state();
        let region = state.reservations.iter().rfind(|reservation| reservation.is_region);
        region.expect("no region").start.wrapping_add(offset)
    }

    /// With this environment variable set.
    pub fn environment(mut self, name: &'static str, value: &'static str) -> Self {
        self.environment.push((name, value));
        self
    }

    /// From now on, this percentage of the memory limit is taken.
    pub fn take_memory(&self, percent: u64) {
        self.taken_percent.store(percent, Ordering::Relaxed);
    }

    /// With this text in the program's `ebb_options`.
    pub fn options_in_code(self, options_in_code: &'static str) -> Self {
        Self { options_in_code, ..self }
    }

    /// With this `EBB_MODE`.
    pub fn mode(self, mode: &'static str) -> Self {
        self.environment("EBB_MODE", mode)
    }

    /// If `passed`, threads count as having passed each barrier: for tests in which none runs
    /// meanwhile. Else they cannot be made to pass one.
    pub fn barrier(self, passed: bool) -> Self {
        Self { barrier: Some(passed), ..self }
    }

    /// Sets whether all threads count as in the middle of an operation.
    pub fn set_busy(&self, busy: bool) {
        self.busy.store(busy, Ordering::Relaxed);
    }

    /// How often all threads were made to pass a barrier. The caller has passed the last one.
    pub fn barriers(&self) -> usize {
        self.barriers.load(Ordering::Acquire)
    }

    /// Refuses these calls of commit, decommit, purge, move and advice, numbered together from 0.
    pub fn refusing(self, calls: Range<usize>) -> Self {
        self.faults.refuse(calls);
        self
    }

    /// The refusals of commit, decommit, purge, move and advice.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Refuses no call from now on.
    pub fn heal(&self) {
        self.faults.heal();
    }

    /// Number of calls of commit, decommit, purge, move and advice.
    pub fn calls(&self) -> usize {
        self.faults.calls()
    }

    /// Number of these calls that were refused.
    pub fn refusals(&self) -> usize {
        self.faults.refusals()
    }

    /// Whether an environment variable is set.
    pub(crate) fn sets(&self, name: &str) -> bool {
        self.environment.iter().any(|&(found, value)| found == name && !value.is_empty())
    }

    /// How often the engine reported out of memory.
    pub fn shortages(&self) -> usize {
        self.shortages.load(Ordering::Relaxed)
    }

    /// Number of moves of pages.
    pub fn moves(&self) -> usize {
        self.moves.load(Ordering::Relaxed)
    }

    /// Runs `work` once the next pages have moved, before the engine knows that they did: another
    /// thread may run then.
    pub fn in_next_move(&self, work: impl FnOnce() + Send + 'static) {
        *self.in_move.lock().unwrap() = Some(Box::new(work));
    }

    /// Refuses the next move of pages to a longer range, and unmaps that range: as kernels before
    /// Linux 6.17 do where the process is beyond a limit of its own.
    pub fn lose_next_target(&self) {
        self.loses_target.store(true, Ordering::Relaxed);
    }

    /// Refuses the next move of more than `bytes` bytes to a range of the same length once the
    /// first `bytes` have moved: as kernels from Linux 6.17 on do where the program has divided the
    /// mapping, and the kernel does not move a later part.
    pub fn move_partly(&self, bytes: usize) {
        self.moves_partly.store(bytes, Ordering::Relaxed);
    }

    /// Number of purges.
    pub fn purges(&self) -> usize {
        self.purges.load(Ordering::Relaxed)
    }

    /// Whether a page is committed.
    pub fn is_committed(&self, start: *mut u8) -> bool {
        let mut state = self.state();
        let (reservation, pages) = state.pages_of(self.page, start, self.page);
        reservation.committed[pages.start]
    }

    /// Bytes that are reserved and not committed.
    pub fn uncommitted(&self) -> usize {
        let pages =
            |reservation: &Reservation| reservation.committed.iter().filter(|&&c| !c).count();
        self.state().reservations.iter().map(pages).sum::<usize>() * self.page
    }

    /// Bytes of the longest range of the region that is not committed.
    pub(crate) fn longest_uncommitted(&self) -> usize {
        let state = self.state();
        let region = state.reservations.iter().rfind(|reservation| reservation.is_region);
        let runs = region.iter().flat_map(|region| region.committed.split(|&committed| committed));
        runs.map(|run| run.len()).max().unwrap_or(0) * self.page
    }

    /// Bytes of pages that do not read as zero, among the first `bytes` of the last reservation,
    /// the region. A kernel would keep these pages resident.
    pub fn resident(&self, bytes: usize) -> usize {
        let state = self.state();
        let Some(reservation) = state.reservations.last() else {
            return 0;
        };
        let touched = |&page: &usize| self.touches(reservation, page);
        (0..bytes / self.page).filter(touched).count() * self.page
    }

    /// Bytes of all committed pages that do not read as zero, in all reservations.
    pub fn touched(&self) -> usize {
        let touched = |reservation: &Reservation| {
            let pages = 0..reservation.committed.len();
            pages.filter(|&page| self.touches(reservation, page)).count()
        };
        self.state().reservations.iter().map(touched).sum::<usize>() * self.page
    }

    /// Number of mappings that a kernel would have for pages that have moved.
    pub fn moved_mappings(&self) -> usize {
        let state = self.state();
        let mappings = |reservation: &Reservation| {
            let pages = reservation.committed.iter().zip(&reservation.moves);
            let mut found: Vec<_> =
                pages.map(|(&committed, &nth)| if committed { nth } else { 0 }).collect();
            found.dedup();
            found.iter().filter(|&&nth| nth > 0).count()
        };
        state.reservations.iter().map(mappings).sum()
    }

    /// The printed text so far.
    pub fn printed(&self) -> String {
        self.state().printed.clone()
    }

    /// What was printed, without the line that tells of the first refused request.
    pub fn complaints(&self) -> String {
        let printed = self.printed();
        let is_other = |line: &&str| !line.starts_with("ebbmalloc: refused ");
        printed.lines().filter(is_other).collect()
    }

    /// Sets the stack of calls that [`Os::calls`] returns, the innermost first, where
    /// [`fake_stack::call`] sets none.
    pub fn set_calls(&self, calls: &[usize]) {
        self.state().calls = calls.to_vec();
    }

    /// Sets the names of functions, by their first addresses.
    pub fn set_names(&self, names: &[(usize, &'static str)]) {
        self.state().names = names.to_vec();
    }

    /// Sets where the C library has its data.
    pub fn set_c_library(&self, found: CLibrary) {
        self.state().c_library = Some(found);
    }

    /// The watch over the region.
    pub(crate) fn watch(&self) -> Option<&Watch> {
        self.watch.as_ref()?.get()
    }

    /// Whether a page is committed and does not read as zero.
    fn touches(&self, reservation: &Reservation, page: usize) -> bool {
        let bytes = reservation.bytes(page * self.page, self.page);
        let purged = self.watch().is_some_and(|watch| watch.is_purged(bytes.as_ptr()));
        reservation.committed[page] && !purged && !is_zero(bytes)
    }

    /// Makes pages read as zero, or fills them with `left`.
    ///
    /// # Safety
    /// No other thread uses the pages, and the caller holds the lock of the state.
    unsafe fn clear(&self, start: *mut u8, bytes: usize, left: Option<u8>) {
        for offset in (0..bytes).step_by(self.page) {
            // SAFETY: the caller guarantees that no other thread uses the page.
            unsafe {
                let page = start.add(offset);
                if !self.watch().is_some_and(|watch| watch.purge(page, left)) {
                    page.write_bytes(left.unwrap_or(0), self.page);
                }
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test may have panicked on purpose. The state stays valid for reading.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Number of committed pages.
    fn committed(&self) -> usize {
        let of = |one: &Reservation| one.committed.iter().filter(|&&there| there).count();
        self.reservations.iter().map(of).sum()
    }

    /// Panics unless the whole range is committed. `done` says what was done to it.
    fn assert_committed(&mut self, page: usize, start: *mut u8, bytes: usize, done: &str) {
        let (reservation, pages) = self.pages_of(page, start, bytes);
        assert!(reservation.committed[pages].iter().all(|&c| c), "{done} what is not committed");
    }

    /// The reservation of a range, and the range's pages in it.
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
        // SAFETY: the range lies in the reservation, and is initialised: its pages are committed or
        // poisoned. Under Miri, watched free memory is not, and Miri reports a read of it.
        unsafe { slice::from_raw_parts(self.start.add(offset), length) }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout. The engine owns this value, so it is dropped as well.
        unsafe { alloc::dealloc(self.start, self.layout) }
    }
}

/// Whether all bytes are zero. Uses one comparison, since Miri is slow per step.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.first().is_none_or(|&first| first == 0 && bytes[1..] == bytes[..bytes.len() - 1])
}

impl OsMemory for FakeOs {
    fn page_size(&self) -> usize {
        self.page
    }

    fn address_space(&self) -> usize {
        self.space
    }

    fn addresses(&self, bytes: usize, align: usize, _attempt: u32) -> Option<NonNull<u8>> {
        assert_eq!(bytes % self.page, 0, "a reservation not of whole pages");
        let layout = Layout::from_size_align(bytes, align).ok()?;
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })?;
        // Not under loom, which makes thousands of engines.
        if !cfg!(loom) {
            // SAFETY: the allocation has `bytes` bytes.
            unsafe { start.write_bytes(POISON, bytes) };
        }
        let committed = vec![false; bytes / self.page];
        let moves = vec![0; bytes / self.page];
        // Only the region has a larger alignment than a page.
        let is_region = align > self.page;
        let start_of = start.as_ptr();
        let left = self.taken_regions.load(Ordering::Relaxed);
        let is_taken = is_region && left > 0;
        self.taken_regions.store(left - is_taken as usize, Ordering::Relaxed);
        let reservation =
            Reservation { start: start_of, layout, committed, moves, is_region, is_taken };
        self.state().reservations.push(reservation);
        if let Some(watch) = self.watch.as_ref().filter(|_| is_region) {
            // SAFETY: reservations live as long as the fake, and this one is new.
            watch.get_or_init(|| unsafe { Watch::new(start.as_ptr(), layout, self.page) });
        }
        Some(start)
    }

    unsafe fn commit(&self, start: *mut u8, bytes: usize) -> Result<(), Refusal> {
        if self.faults.refuses() {
            return Err(Refusal::Memory);
        }
        let mut state = self.state();
        let committed = (self.data < usize::MAX).then(|| state.committed() * self.page);
        let (reservation, pages) = state.pages_of(self.page, start, bytes);
        let taken = |range: &Range<usize>| {
            reservation.is_region
                && range.start < pages.end * self.page
                && range.end > pages.start * self.page
        };
        if reservation.is_taken || self.neighbours.lock().unwrap().iter().any(taken) {
            return Err(Refusal::Addresses);
        }
        if committed.is_some_and(|bytes| bytes + pages.len() * self.page > self.data) {
            return Err(Refusal::Memory);
        }
        for page in pages {
            assert!(!reservation.committed[page], "a page committed again");
            // SAFETY: the page lies in the reservation, and was not committed, so nothing uses it.
            unsafe { self.clear(reservation.start.add(page * self.page), self.page, None) };
            reservation.committed[page] = true;
            reservation.moves[page] = 0;
        }
        Ok(())
    }

    unsafe fn decommit(&self, start: *mut u8, bytes: usize) -> bool {
        let refused = self.faults.refuses();
        let mut state = self.state();
        let (reservation, pages) = state.pages_of(self.page, start, bytes);
        let committed = &mut reservation.committed[pages];
        assert!(committed.iter().all(|&c| c), "decommitted what is not committed");
        if !refused {
            self.leave_mapping(start, bytes);
            committed.fill(false);
            // SAFETY: the caller guarantees that nothing uses the range any more.
            unsafe { self.clear(start, bytes, Some(POISON)) };
        }
        !refused
    }

    unsafe fn purge(&self, start: *mut u8, bytes: usize) -> bool {
        let is_met = |locked: &Range<usize>| {
            locked.start < start.addr() + bytes && start.addr() < locked.end
        };
        let refused = self.faults.refuses() || self.locked.lock().unwrap().iter().any(is_met);
        let mut state = self.state();
        state.assert_committed(self.page, start, bytes, "purged");
        // SAFETY: the caller guarantees that nothing uses the contents any more.
        unsafe { self.clear(start, bytes, refused.then_some(SPOILT)) };
        self.purges.fetch_add(!refused as usize, Ordering::Relaxed);
        drop(state);
        let purged = start.addr()..start.addr() + bytes;
        self.huge_pages.lock().unwrap().retain(|page| {
            let is_touched = page.start < purged.end && purged.start < page.end;
            let is_whole = purged.start <= page.start && page.end <= purged.end;
            self.broken.fetch_add((is_touched && !is_whole) as usize, Ordering::Relaxed);
            !is_touched
        });
        !refused
    }

    unsafe fn has_data(&self, page: *const u8) -> bool {
        match self.watch().filter(|_| cfg!(miri)) {
            // Miri forbids to read free memory that is watched.
            Some(watch) => !watch.is_purged(page),
            // SAFETY: the caller guarantees that the page is committed and not in use.
            None => !is_zero(unsafe { slice::from_raw_parts(page, self.page) }),
        }
    }

    fn has_huge_pages(&self, _bytes: usize) -> bool {
        self.has_huge_pages
    }

    unsafe fn back_by_huge_page(&self, start: *mut u8, bytes: usize) -> Option<u64> {
        assert!(start.addr().is_multiple_of(bytes), "no place for a huge page");
        self.state().assert_committed(self.page, start, bytes, "backed");
        // SAFETY: the caller guarantees that the range is committed and not in use.
        let is_clean = is_zero(unsafe { slice::from_raw_parts(start, bytes) });
        assert!(is_clean || self.watch.is_some(), "backed what was used");
        let range = start.addr()..start.addr() + bytes;
        self.huge_page_ns.inspect(|_| self.huge_pages.lock().unwrap().push(range))
    }

    unsafe fn allow_huge_pages(&self, start: *mut u8, bytes: usize, allowed: bool) -> bool {
        self.state().assert_committed(self.page, start, bytes, "advised");
        let range = start.addr()..start.addr() + bytes;
        let mut advised = self.advised.lock().unwrap();
        let is_met = |old: &Range<usize>| old.start < range.end && range.start < old.end;
        if !allowed {
            let rests = |old: Range<usize>| match is_met(&old) {
                true => [old.start..range.start.max(old.start), range.end.min(old.end)..old.end],
                false => [old, 0..0],
            };
            *advised = advised.drain(..).flat_map(rests).filter(|rest| !rest.is_empty()).collect();
            return true;
        }
        assert!(!advised.iter().any(is_met), "advised twice");
        let granted = self.huge_page_ns.is_some() && !self.faults.refuses();
        advised.extend(granted.then_some(range));
        granted
    }

    unsafe fn move_pages(
        &self,
        from: *mut u8,
        to: *mut u8,
        bytes: usize,
        room: usize,
    ) -> Result<(), NotMoved> {
        let part = self.moves_partly.load(Ordering::Relaxed);
        if part > 0 && bytes > part && room == bytes {
            self.moves_partly.store(0, Ordering::Relaxed);
            // SAFETY: both ranges begin with those of the caller.
            unsafe {
                self.move_pages(from, to, part, part)?;
                self.clear(to.add(part), room - part, None);
            }
            return Err(NotMoved { moved_bytes: part, refusal: Refusal::Memory });
        }
        let loses = room > bytes && self.loses_target.swap(false, Ordering::Relaxed);
        if self.faults.refuses() || loses {
            // SAFETY: the caller guarantees that nothing else uses the target. Its contents are
            // lost.
            unsafe { self.clear(to, room, loses.then_some(POISON)) };
            if loses {
                let mut state = self.state();
                let (reservation, pages) = state.pages_of(self.page, to, room);
                reservation.committed[pages].fill(false);
                return Err(Refusal::Addresses.into());
            }
            return Err(Refusal::Memory.into());
        }
        self.leave_mapping(from, bytes);
        let nth = self.moves.fetch_add(1, Ordering::Relaxed) + 1;
        let mut state = self.state();
        for (start, length) in [(from, bytes), (to, room)] {
            state.assert_committed(self.page, start, length, "moved");
        }
        // SAFETY: both ranges are committed, and the caller owns them. It is checked that they are
        // disjoint.
        unsafe {
            let is_after = to.addr() >= from.addr() + bytes;
            assert!(is_after || from.addr() >= to.addr() + room, "moved onto itself");
            ptr::copy_nonoverlapping(from, to, bytes);
            self.watch().inspect(|watch| watch.move_pages(from, to, bytes));
            self.clear(from, bytes, Some(POISON));
            if room > bytes {
                self.clear(to.add(bytes), room - bytes, None);
            }
        }
        let (reservation, pages) = state.pages_of(self.page, from, bytes);
        let moves = &reservation.moves[pages.clone()];
        // Kernels before Linux 6.17 refuse this.
        assert!(moves.iter().all(|&nth| nth == moves[0]), "moved two mappings at once");
        reservation.committed[pages].fill(false);
        let (reservation, pages) = state.pages_of(self.page, to, room);
        reservation.moves[pages].fill(nth);
        drop(state);
        let work = self.in_move.lock().unwrap().take();
        if let Some(work) = work {
            work();
        }
        Ok(())
    }

    fn memory_limit(&self) -> Option<u64> {
        self.memory
    }

    fn memory_taken_percent(&self) -> Option<u64> {
        Some(self.taken_percent.load(Ordering::Relaxed))
    }

    fn resident(&self, address: usize, pages: &mut [bool]) {
        // Untouched pages are zero.
        let mut state = self.state();
        let bytes = pages.len() * self.page;
        let (reservation, range) =
            state.pages_of(self.page, ptr::without_provenance_mut(address), bytes);
        for (resident, page) in pages.iter_mut().zip(range) {
            *resident = self.touches(reservation, page);
        }
    }
}

impl OsThreads for FakeOs {
    fn cpus(&self) -> usize {
        self.cpus
    }

    fn rseq(&self) -> Result<RseqArea, &'static str> {
        Err("a fake has no rseq")
    }

    fn join_rseq(&self) -> bool {
        false
    }

    fn thread_token(&self) -> usize {
        static KEYS: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static KEY: usize = KEYS.fetch_add(1, Ordering::Relaxed));
        KEY.with(|key| *key)
    }

    fn thread_id(&self) -> u32 {
        self.thread_token() as u32
    }

    fn thread_words(&self) -> &ThreadWords {
        self.words.of_this_thread()
    }

    fn may_be(&self, words: *const ThreadWords, state: u32) -> bool {
        // The engine asks other threads about this state only.
        self.busy.load(Ordering::Relaxed) || words::may_be(words, state)
    }

    fn is_first(&self) -> bool {
        false
    }

    fn is_single(&self) -> bool {
        false
    }

    fn watch_threads(&self, _: Option<extern "C" fn(bool)>) -> Result<(), &'static str> {
        Ok(())
    }

    fn watch_thread(&self) -> bool {
        true
    }

    fn can_stop(&self) -> bool {
        self.barrier != Some(false)
    }

    fn stop_others(&self, _sequences: bool) -> bool {
        self.barriers.fetch_add(1, Ordering::Release);
        // Miri has no barrier for other threads.
        self.barrier.unwrap_or_else(|| !cfg!(any(miri, loom)) && membarrier::pass())
    }

    fn start_thread(&self, _: extern "C" fn()) -> Option<usize> {
        None
    }

    fn join_thread(&self, _: usize) {}

    fn sleep_ms(&self, ms: u32) {
        self.now_ms.fetch_add(ms as u64, Ordering::Relaxed);
    }

    fn wait_ms(&self, _: &WakeFlag, ms: u32) {
        self.sleep_ms(ms);
    }

    fn wake(&self, _: &WakeFlag) {}
}

impl OsProcess for FakeOs {
    fn kernel(&self) -> [u32; 2] {
        [0; 2]
    }

    fn random(&self) -> u64 {
        self.now_ms.load(Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ 0x0123_4567_89ab_cdef
    }

    fn now_ms(&self) -> u64 {
        self.now_ms.fetch_add(self.tick_ms, Ordering::Relaxed)
    }

    fn for_each_variable(&self, prefix: &str, work: &mut dyn FnMut(&[u8])) {
        for (name, value) in self.environment.iter().rev() {
            if let Some(rest) = name.strip_prefix(prefix) {
                work(format!("{rest}={value}").as_bytes());
            }
        }
    }

    fn options_in_code(&self) -> &'static [u8] {
        self.options_in_code.as_bytes()
    }

    fn out_of_memory(&self) {
        self.shortages.fetch_add(1, Ordering::Relaxed);
    }

    fn at_fork(&self, _: extern "C" fn(), _: extern "C" fn(), _: extern "C" fn()) {}

    fn at_exit(&self, _: extern "C" fn()) {}
}

impl OsReports for FakeOs {
    fn print(&self, text: &[u8]) {
        self.state().printed.push_str(&String::from_utf8_lossy(text));
    }

    fn calls(&self, out: &mut [usize]) -> usize {
        if let Some(depth) = fake_stack::calls(out) {
            return depth;
        }
        let calls = self.state().calls.clone();
        let depth = calls.len().min(out.len());
        out[..depth].copy_from_slice(&calls[..depth]);
        depth
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

    fn watch_faults(&self, _: extern "C" fn(usize, usize)) {}

    fn exit(&self, code: i32) -> ! {
        panic!("exit {code}: {}", self.printed());
    }

    fn abort(&self) -> ! {
        panic!("{}", self.printed());
    }

    fn usage(&self) -> Usage {
        Usage::default()
    }
}
