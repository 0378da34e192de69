//! Gives each thread its words for each engine, in tests that have several engines.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ebbmalloc::internals::ThreadWords;

/// The words of all threads for one engine: its number.
pub(crate) struct Words(usize);

impl Words {
    /// Words for a new engine.
    pub fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The calling thread's words.
    pub fn of_this_thread(&self) -> &ThreadWords {
        type Numbered = (usize, Alive);
        thread_local!(static WORDS: RefCell<Vec<Numbered>> = const { RefCell::new(Vec::new()) });
        let find = |words: &Vec<Numbered>| {
            let (_, found) = words.iter().rev().find(|(number, _)| *number == self.0)?;
            Some(ptr::from_ref(&*found.0))
        };
        WORDS.with(|words| {
            let found = find(&words.borrow());
            let found = found.unwrap_or_else(|| {
                let mut words = words.borrow_mut();
                words.push((self.0, Alive::new()));
                find(&words).expect("just put there")
            });
            // SAFETY: the thread keeps the box, which does not move, until it ends.
            unsafe { &*found }
        })
    }
}

/// The words of a thread that has not ended.
struct Alive(Box<ThreadWords>);

impl Alive {
    fn new() -> Self {
        let words = Box::<ThreadWords>::default();
        all_alive().insert(ptr::from_ref(&*words).addr());
        Self(words)
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        all_alive().remove(&ptr::from_ref(&*self.0).addr());
    }
}

/// The addresses of all words of threads that have not ended.
fn all_alive() -> MutexGuard<'static, BTreeSet<usize>> {
    static ALIVE: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());
    ALIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// [`OsThreads::may_be`](ebbmalloc::internals::OsThreads::may_be).
pub(crate) fn may_be(words: *const ThreadWords, state: u32) -> bool {
    let alive = all_alive();
    // SAFETY: words are valid while their address is in the set, which is locked.
    alive.contains(&words.addr()) && unsafe { &*words }.is_in(state)
}
