//! Times a loop in chunks of at least some ten microseconds, so that an interruption spoils one
//! chunk and not the median. Nothing here uses the allocator under test.

use std::time::{Duration, Instant};
use std::{ptr, slice};

/// Maximum number of chunks kept; a longer run keeps its latest.
const CHUNKS: usize = 1 << 16;

/// Nanoseconds per malloc and free, chunk by chunk, without the warm-up.
pub struct Samples {
    chunks: &'static mut [f64],
    /// The chunks of another thread.
    others: &'static [f64],
    /// Pairs of malloc and free in all chunks.
    pub pairs: u64,
}

impl Samples {
    /// Returns the median chunk. With two threads it maps memory, so read the row's memory before.
    pub fn median_ns(&mut self) -> f64 {
        self.join();
        let middle = self.chunks.len() / 2;
        *self.chunks.select_nth_unstable_by(middle, f64::total_cmp).1
    }

    /// Returns the mean chunk: above the median where some calls do the work of many.
    pub fn mean_ns(&self) -> f64 {
        let count = self.chunks.len() + self.others.len();
        self.chunks.iter().chain(self.others).sum::<f64>() / count as f64
    }

    /// Adds the chunks of another thread.
    pub fn append(&mut self, other: Samples) {
        assert!(self.others.is_empty() && other.others.is_empty(), "only two threads are timed");
        self.others = other.chunks;
        self.pairs += other.pairs;
    }

    /// Joins both threads' chunks in one table.
    fn join(&mut self) {
        let others = std::mem::take(&mut self.others);
        if others.is_empty() {
            return;
        }
        let mut both = self.chunks.iter().chain(others);
        self.chunks = table(self.chunks.len() + others.len(), |_| *both.next().unwrap());
    }
}

/// Runs `chunk`, which does `pairs` pairs, for about `budget`; the first tenth warms up.
#[inline(always)]
pub fn sample(budget: Duration, pairs: usize, mut chunk: impl FnMut()) -> Samples {
    let chunks = table(CHUNKS, |_| 0.0);
    let begin = Instant::now();
    let warm = begin + budget / 10;
    let end = begin + budget;
    chunk();
    while Instant::now() < warm {
        chunk();
    }
    let mut count = 0;
    let mut before = Instant::now();
    loop {
        chunk();
        let now = Instant::now();
        chunks[count % CHUNKS] = (now - before).as_nanos() as f64 / pairs as f64;
        before = now;
        count += 1;
        if now >= end {
            break;
        }
    }
    let chunks = &mut chunks[..count.min(CHUNKS)];
    Samples { chunks, others: &[], pairs: (count * pairs) as u64 }
}

/// Times a program of fixed length, `pairs` pairs in all, as a single chunk.
pub fn sample_once(pairs: usize, program: impl FnOnce()) -> Samples {
    let begin = Instant::now();
    program();
    let ns = begin.elapsed().as_nanos() as f64 / pairs as f64;
    Samples { chunks: table(1, |_| ns), others: &[], pairs: pairs as u64 }
}

/// Makes an array in pages of its own, mapped for the life of the process: it neither uses nor
/// disturbs the allocator under test.
pub fn table<T>(length: usize, mut element: impl FnMut(usize) -> T) -> &'static mut [T] {
    // SAFETY: a fresh private mapping of at least `length` elements, each written before use.
    unsafe {
        let bytes = (length * size_of::<T>()).max(1);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let start = libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0).cast::<T>();
        assert!(start.cast() != libc::MAP_FAILED, "no memory for a table of {bytes} bytes");
        for index in 0..length {
            start.add(index).write(element(index));
        }
        slice::from_raw_parts_mut(start, length)
    }
}
