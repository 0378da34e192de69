//! The words of threads, for engines of which a process has several.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};

use ebbmalloc::ThreadWords;

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
        type Numbered = (usize, Box<ThreadWords>);
        thread_local!(static WORDS: RefCell<Vec<Numbered>> = const { RefCell::new(Vec::new()) });
        let find = |words: &Vec<Numbered>| {
            let (_, found) = words.iter().rev().find(|(number, _)| *number == self.0)?;
            Some(&raw const **found)
        };
        WORDS.with(|words| {
            let found = find(&words.borrow());
            let found = found.unwrap_or_else(|| {
                let mut words = words.borrow_mut();
                words.push((self.0, Box::default()));
                find(&words).expect("just put there")
            });
            // SAFETY: a box stays where it is until the thread ends, and only it has the reference.
            unsafe { &*found }
        })
    }
}
