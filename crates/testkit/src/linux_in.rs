//! The real operating system, in a mode and with as many CPUs as the test chooses.

use std::ptr::NonNull;

use ebbmalloc::{Access, Linux, Os, RseqArea, Symbol, ThreadWords, Usage};

use crate::words::Words;

/// [`Linux`] with `EBB_MODE` as given, and no other variable set.
pub struct LinuxIn {
    mode: &'static str,
    words: Words,
    cpus: Option<usize>,
    id_at: Option<isize>,
}

impl LinuxIn {
    /// In this mode.
    pub fn new(mode: &'static str) -> Self {
        Self { mode, words: Words::new(), cpus: None, id_at: None }
    }

    /// As if there were so many CPUs, fewer or more than there are.
    pub fn cpus(self, cpus: usize) -> Self {
        Self { cpus: Some(cpus), ..self }
    }

    /// As if the kernel wrote the number of the virtual CPU so far from the thread pointer.
    pub fn id_at(self, offset: isize) -> Self {
        Self { id_at: Some(offset), ..self }
    }
}

impl Os for LinuxIn {
    fn environment(&self, name: &str, buffer: &mut [u8]) -> Option<usize> {
        let Self { mode, .. } = self;
        let value = buffer.get_mut(..mode.len()).filter(|_| name == "EBB_MODE")?;
        value.copy_from_slice(mode.as_bytes());
        Some(mode.len())
    }

    fn page_size(&self) -> usize {
        Linux.page_size()
    }

    fn address_space_left(&self) -> usize {
        Linux.address_space_left()
    }

    fn reserve(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        Linux.reserve(bytes, align)
    }

    unsafe fn commit(&self, start: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller's.
        unsafe { Linux.commit(start, bytes) }
    }

    unsafe fn protect(&self, start: *mut u8, bytes: usize, access: Access) -> bool {
        // SAFETY: the caller's.
        unsafe { Linux.protect(start, bytes, access) }
    }

    fn watch_faults(&self, call: extern "C" fn(usize, usize)) {
        Linux.watch_faults(call);
    }

    unsafe fn move_pages(&self, from: *mut u8, to: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller's.
        unsafe { Linux.move_pages(from, to, bytes) }
    }

    unsafe fn purge(&self, start: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller's.
        unsafe { Linux.purge(start, bytes) }
    }

    fn memory_limit(&self) -> Option<u64> {
        Linux.memory_limit()
    }

    fn resident(&self, address: usize, pages: &mut [bool]) {
        Linux.resident(address, pages);
    }

    fn cpus(&self) -> usize {
        self.cpus.unwrap_or_else(|| Linux.cpus())
    }

    fn rseq(&self) -> Result<RseqArea, &'static str> {
        let area = Linux.rseq()?;
        Ok(RseqArea { id_at: self.id_at.unwrap_or(area.id_at), ..area })
    }

    fn join_rseq(&self) -> bool {
        Linux.join_rseq()
    }

    fn leave_rseq(&self) {
        Linux.leave_rseq();
    }

    fn kernel(&self) -> [u32; 2] {
        Linux.kernel()
    }

    fn thread_key(&self) -> usize {
        Linux.thread_key()
    }

    fn thread_words(&self) -> &ThreadWords {
        self.words.of_this_thread()
    }

    fn watch_threads(&self, _: Option<extern "C" fn()>) -> Result<(), &'static str> {
        // Threads of tests say themselves when they leave.
        Ok(())
    }

    fn watch_thread(&self) -> bool {
        true
    }

    fn print(&self, text: &[u8]) {
        Linux.print(text);
    }

    fn out_of_memory(&self) {
        Linux.out_of_memory();
    }

    fn thread_id(&self) -> u32 {
        Linux.thread_id()
    }

    fn calls(&self, out: &mut [usize]) -> usize {
        Linux.calls(out)
    }

    fn symbol(&self, address: usize) -> Option<Symbol<'_>> {
        Linux.symbol(address)
    }

    fn abort(&self) -> ! {
        Linux.abort()
    }

    fn at_fork(&self, before: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
        Linux.at_fork(before, parent, child);
    }

    fn at_exit(&self, call: extern "C" fn()) {
        Linux.at_exit(call);
    }

    fn restart_sequences(&self) -> bool {
        Linux.restart_sequences()
    }

    fn is_threaded(&self, forked: bool) -> bool {
        Linux.is_threaded(forked)
    }

    fn start_thread(&self, work: extern "C" fn()) -> bool {
        Linux.start_thread(work)
    }

    fn is_alone(&self) -> bool {
        Linux.is_alone()
    }

    fn sleep_ms(&self, ms: u32) {
        Linux.sleep_ms(ms);
    }

    fn now_ms(&self) -> u64 {
        Linux.now_ms()
    }

    fn usage(&self) -> Usage {
        Linux.usage()
    }
}
