//! The words of threads, for engines of which a process has several.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ebbmalloc::internals::ThreadWords;

/// Gives each thread words for one engine.
pub(crate) struct Words(usize);

impl Words {
    /// Words that nobody has seen yet.
    pub fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The calling thread's.
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
            // SAFETY: a box stays where it is until the thread ends, and only it has the reference.
            unsafe { &*found }
        })
    }
}

/// Words of a thread that has not ended.
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

/// The addresses of the words of all threads.
fn all_alive() -> MutexGuard<'static, BTreeSet<usize>> {
    static ALIVE: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());
    ALIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// [`OsThreads::may_be`](ebbmalloc::internals::OsThreads::may_be).
pub(crate) fn may_be(words: *const ThreadWords, state: u32) -> bool {
    let alive = all_alive();
    // SAFETY: they live as long as their address is among these.
    alive.contains(&words.addr()) && unsafe { &*words }.say(state)
}
