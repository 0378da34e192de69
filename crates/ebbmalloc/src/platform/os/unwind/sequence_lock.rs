//! A few words that threads read and write as one, without waiting: a sequence lock.
//!
//! A writer makes the version odd, stores the words, and makes it even. A reader that sees an odd
//! version, or another one afterwards, has read nothing. Who finds a writer at work does not wait:
//! the writer may be the same thread, which a signal interrupted, or a thread that a fork lost.

use crate::platform::sync::{Ordering, ProtocolU64};

/// Words of a cache's entry. All-zero bytes are an entry of zeros.
pub struct SequenceLock<const N: usize> {
    version: ProtocolU64,
    words: [ProtocolU64; N],
}

#[cfg(not(loom))]
impl<const N: usize> SequenceLock<N> {
    /// An entry of zeros.
    #[allow(clippy::declare_interior_mutable_const, reason = "it fills tables")]
    pub const ZERO: Self =
        Self { version: ProtocolU64::new(0), words: [const { ProtocolU64::new(0) }; N] };
}

impl<const N: usize> SequenceLock<N> {
    /// An entry of these words.
    #[cfg(loom)]
    pub fn new(words: [ProtocolU64; N]) -> Self {
        Self { version: ProtocolU64::new(0), words }
    }

    /// The words; `None` if a writer is at work.
    #[inline]
    pub fn read(&self) -> Option<[u64; N]> {
        let before = self.version.load(Ordering::Acquire);
        // A reader of a word that a later writer stored also sees that writer's version below.
        let words = core::array::from_fn(|nth| self.words[nth].load(Ordering::Acquire));
        let after = self.version.load(Ordering::Relaxed);
        (before == after && before.is_multiple_of(2)).then_some(words)
    }

    /// Stores the words, unless another writer is at work.
    pub fn write(&self, words: [u64; N]) {
        let before = self.version.load(Ordering::Relaxed);
        let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
        if !before.is_multiple_of(2)
            || self.version.compare_exchange(before, before + 1, success, failure).is_err()
        {
            return;
        }
        for (word, new) in self.words.iter().zip(words) {
            word.store(new, Ordering::Release);
        }
        self.version.store(before + 2, Ordering::Release);
    }

    /// For mutants: stores the words without telling readers.
    #[cfg(loom)]
    pub fn write_untold(&self, words: [u64; N]) {
        for (word, new) in self.words.iter().zip(words) {
            word.store(new, Ordering::Release);
        }
    }
}
