//! The real operating system, with a mode, CPUs, limits and refusals that a test chooses.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ebbmalloc::internals::{
    Engine, Linux, NotMoved, OsMemory, OsProcess, OsReports, OsThreads, Refusal, RseqArea, Symbol,
    ThreadWords, Usage, WakeFlag, Writer,
};

use crate::words::Words;
use crate::{Faults, fake_stack, membarrier};

/// [`Linux`] with a chosen `EBB_MODE`, and no other variable set unless the test adds it. Dropping
/// it unmaps its memory.
pub struct LinuxIn {
    environment: Vec<(&'static str, &'static str)>,
    words: Words,
    cpus: Option<usize>,
    id_at: Option<isize>,
    no_rseq: bool,
    space: usize,
    seed: Option<u64>,
    faults: Faults,
    while_restarting: Option<fn()>,
    mapped: Mapped,
}

impl LinuxIn {
    /// With this mode.
    pub fn new(mode: &'static str) -> Self {
        Self {
            environment: vec![("EBB_MODE", mode)],
            words: Words::new(),
            cpus: None,
            id_at: None,
            no_rseq: false,
            space: usize::MAX,
            seed: None,
            faults: Faults::default(),
            while_restarting: None,
            mapped: Mapped::default(),
        }
    }

    /// As if there were this many CPUs, fewer or more than there are.
    pub fn cpus(self, cpus: usize) -> Self {
        Self { cpus: Some(cpus), ..self }
    }

    /// As if the kernel had no rseq.
    pub fn without_rseq(self) -> Self {
        Self { no_rseq: true, ..self }
    }

    /// As if there were this many bytes of address space.
    pub fn space(self, bytes: usize) -> Self {
        Self { space: bytes, ..self }
    }

    /// With this random number in place of the kernel's.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed: Some(seed), ..self }
    }

    /// Calls `call` each time that restartable sequences are restarted.
    pub fn while_restarting(self, call: fn()) -> Self {
        Self { while_restarting: Some(call), ..self }
    }

    /// With this environment variable set.
    pub fn environment(mut self, name: &'static str, value: &'static str) -> Self {
        self.environment.push((name, value));
        self
    }

    /// The refusals of commit, decommit, purge and move.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Whether the engine may be short of memory although the machine has some.
    pub(crate) fn is_bounded(&self) -> bool {
        let limited = |&(name, value): &(&str, &str)| name == "EBB_LIMIT" && !value.is_empty();
        self.space < 1 << 39 || self.environment.iter().any(limited)
    }

    /// As if the kernel wrote the id of the virtual CPU at this offset from the thread pointer.
    pub fn id_at(self, offset: isize) -> Self {
        Self { id_at: Some(offset), ..self }
    }
}

/// Mapped ranges: their bytes by their starts.
#[derive(Default)]
struct Mapped(Mutex<BTreeMap<usize, usize>>);

impl Mapped {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a range, which may cover parts of several.
    fn remove(&self, start: usize, bytes: usize) {
        let end = start + bytes;
        let mut mapped = self.lock();
        let within = |(&at, &bytes): (&usize, &usize)| at + bytes > start && at < end;
        let ranges: Vec<_> = mapped
            .iter()
            .filter(|&(at, bytes)| within((at, bytes)))
            .map(|(&a, &b)| (a, b))
            .collect();
        for (at, bytes) in ranges {
            mapped.remove(&at);
            if at < start {
                mapped.insert(at, start - at);
            }
            if at + bytes > end {
                mapped.insert(end, at + bytes - end);
            }
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        for (&start, &bytes) in self.lock().iter() {
            // SAFETY: mapped for the engine, which is dropped as well, so no block is left.
            unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(start), bytes) };
        }
    }
}

/// Sets the engine up. Returns whether it is in the requested mode; if not, prints that the test is
/// skipped.
pub fn is_possible(engine: &Engine<LinuxIn>, mode: &str) -> bool {
    assert!(!engine.alloc(1).is_null());
    let choice = engine.stats().choice;
    let possible = choice.mode == mode;
    if !possible {
        eprintln!("SKIPPED: not possible here: {choice}");
    }
    possible
}

impl OsMemory for LinuxIn {
    fn page_size(&self) -> usize {
        Linux.page_size()
    }

    fn address_space(&self) -> usize {
        Linux.address_space().min(self.space)
    }

    fn addresses(&self, bytes: usize, align: usize, attempt: u32) -> Option<NonNull<u8>> {
        Linux.addresses(bytes, align, attempt)
    }

    unsafe fn commit(&self, start: *mut u8, bytes: usize) -> Result<(), Refusal> {
        if self.faults.refuses() {
            return Err(Refusal::Memory);
        }
        // SAFETY: the caller fulfils the contract of `Os::commit`.
        unsafe { Linux.commit(start, bytes)? };
        self.mapped.lock().insert(start.expose_provenance(), bytes);
        Ok(())
    }

    unsafe fn decommit(&self, start: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller fulfils the contract of `Os::decommit`.
        let done = !self.faults.refuses() && unsafe { Linux.decommit(start, bytes) };
        if done {
            self.mapped.remove(start.addr(), bytes);
        }
        done
    }

    unsafe fn purge(&self, start: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller fulfils the contract of `Os::purge`.
        !self.faults.refuses() && unsafe { Linux.purge(start, bytes) }
    }

    fn has_huge_pages(&self, bytes: usize) -> bool {
        Linux.has_huge_pages(bytes)
    }

    unsafe fn back_by_huge_page(&self, start: *mut u8, bytes: usize) -> Option<u64> {
        // SAFETY: the caller's.
        unsafe { Linux.back_by_huge_page(start, bytes) }
    }

    unsafe fn allow_huge_pages(&self, start: *mut u8, bytes: usize, allowed: bool) -> bool {
        // SAFETY: the caller's.
        unsafe { Linux.allow_huge_pages(start, bytes, allowed) }
    }

    unsafe fn move_pages(
        &self,
        from: *mut u8,
        to: *mut u8,
        bytes: usize,
        room: usize,
    ) -> Result<(), NotMoved> {
        if self.faults.refuses() {
            return Err(Refusal::Memory.into());
        }
        // SAFETY: the caller's.
        unsafe { Linux.move_pages(from, to, bytes, room) }
    }

    fn memory_limit(&self) -> Option<u64> {
        Linux.memory_limit()
    }

    fn memory_taken_percent(&self) -> Option<u64> {
        Linux.memory_taken_percent()
    }

    fn resident(&self, address: usize, pages: &mut [bool]) {
        Linux.resident(address, pages);
    }
}

impl OsThreads for LinuxIn {
    fn cpus(&self) -> usize {
        self.cpus.unwrap_or_else(|| Linux.cpus())
    }

    fn rseq(&self) -> Result<RseqArea, &'static str> {
        if self.no_rseq {
            return Err("not in this test");
        }
        let area = Linux.rseq()?;
        Ok(RseqArea { id_at: self.id_at.unwrap_or(area.id_at), ..area })
    }

    fn join_rseq(&self) -> bool {
        Linux.join_rseq()
    }

    fn leave_rseq(&self) {
        Linux.leave_rseq();
    }

    fn thread_token(&self) -> usize {
        Linux.thread_token()
    }

    fn thread_id(&self) -> u32 {
        Linux.thread_id()
    }

    fn thread_words(&self) -> &ThreadWords {
        self.words.of_this_thread()
    }

    fn may_be(&self, words: *const ThreadWords, state: u32) -> bool {
        Linux.may_be(words, state)
    }

    fn is_first(&self) -> bool {
        Linux.is_first()
    }

    fn is_single(&self) -> bool {
        Linux.is_single()
    }

    fn watch_threads(&self, _: Option<extern "C" fn(bool)>) -> Result<(), &'static str> {
        // Threads of tests call `Engine::leave_thread` themselves.
        Ok(())
    }

    fn watch_thread(&self) -> bool {
        true
    }

    fn can_stop(&self) -> bool {
        true
    }

    fn stop_others(&self, sequences: bool) -> bool {
        if !sequences {
            return membarrier::pass();
        }
        self.while_restarting.inspect(|call| call());
        membarrier::restart_sequences()
    }

    fn start_thread(&self, work: extern "C" fn()) -> Option<usize> {
        Linux.start_thread(work)
    }

    fn join_thread(&self, thread: usize) {
        Linux.join_thread(thread);
    }

    fn sleep_ms(&self, ms: u32) {
        Linux.sleep_ms(ms);
    }

    fn wait_ms(&self, flag: &WakeFlag, ms: u32) {
        Linux.wait_ms(flag, ms);
    }

    fn wake(&self, flag: &WakeFlag) {
        Linux.wake(flag);
    }
}

impl OsProcess for LinuxIn {
    fn kernel(&self) -> [u32; 2] {
        Linux.kernel()
    }

    fn random(&self) -> u64 {
        self.seed.unwrap_or_else(|| Linux.random())
    }

    fn now_ms(&self) -> u64 {
        Linux.now_ms()
    }

    fn for_each_variable(&self, prefix: &str, work: &mut dyn FnMut(&[u8])) {
        for (name, value) in &self.environment {
            if let Some(rest) = name.strip_prefix(prefix) {
                work(format!("{rest}={value}").as_bytes());
            }
        }
    }

    fn out_of_memory(&self) {
        Linux.out_of_memory();
    }

    fn at_fork(&self, before: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
        Linux.at_fork(before, parent, child);
    }

    fn at_exit(&self, call: extern "C" fn()) {
        Linux.at_exit(call);
    }
}

impl OsReports for LinuxIn {
    /// Without the first refusal of each engine: tests make many run short.
    fn print(&self, text: &[u8]) {
        if !text.starts_with(b"ebbmalloc: refused ") {
            Linux.print(text);
        }
    }

    fn write_file(&self, path: &CStr, work: &mut dyn FnMut(Writer)) -> bool {
        Linux.write_file(path, work)
    }

    fn mappings(&self, out: &mut dyn FnMut(&[u8])) {
        Linux.mappings(out);
    }

    fn process_id(&self) -> u32 {
        Linux.process_id()
    }

    fn calls(&self, out: &mut [usize]) -> usize {
        fake_stack::calls(out).unwrap_or_else(|| Linux.calls(out))
    }

    fn with_symbol(&self, address: usize, may_read: bool, work: &mut dyn FnMut(Option<Symbol>)) {
        Linux.with_symbol(address, may_read, work);
    }

    fn watch_faults(&self, call: extern "C" fn(usize, usize)) {
        Linux.watch_faults(call);
    }

    fn exit(&self, code: i32) -> ! {
        Linux.exit(code)
    }

    fn abort(&self) -> ! {
        Linux.abort()
    }

    fn usage(&self) -> Usage {
        Linux.usage()
    }
}
