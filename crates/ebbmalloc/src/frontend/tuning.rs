//! Tunables of the front end: the capacity of caches, and when it changes.

use crate::size_class::{MIN_ALIGN, UNIT};
use crate::tuning::tunables;

tunables! {
    /// Misses in a row the same way after which a stack is in a streak.
    STREAK_MISSES: u8 = 2, "misses", 7;
    /// Such misses after which a stack is one end of a flow: another thread has the opposite need.
    FLOW_MISSES: u8 = 8, "misses", 29;
    /// The least bytes of a batch of a flow, with one block more: most spans have as many.
    FLOW_BATCH_BYTES_MIN: usize = UNIT, "bytes", 29;
    /// The same in a thread's own cache, which has no capacity for more.
    OWN_FLOW_BATCH_BYTES_MIN: usize = UNIT / 2, "bytes", 29;
    /// There, smaller blocks are in no flow: a span has many of them.
    OWN_FLOW_BLOCK_BYTES_MIN: usize = 1 << 10, "bytes", 29;
    /// The most bytes of blocks in one stack, unless `STACK_BLOCKS_MIN` blocks are more.
    STACK_BYTES_MAX: usize = 216 << 10, "bytes", 5;
    /// The most blocks in one stack, unless `TINY_STACK_BYTES_MAX` are more.
    STACK_BLOCKS_MAX: usize = 1024, "blocks", 5;
    /// The most bytes in one stack of blocks up to 32 bytes. Programs free thousands of these and
    /// allocate as many again.
    TINY_STACK_BYTES_MAX: usize = 48 << 10, "bytes", 5;
    /// That in blocks of 16 bytes: no stack holds more blocks.
    TINY_STACK_BLOCKS_MAX: usize = TINY_STACK_BYTES_MAX / MIN_ALIGN, "blocks", 5;
    /// Blocks that a stack may grow to, however large they are.
    STACK_BLOCKS_MIN: usize = 40, "blocks", 39;
    /// First capacity of a stack, and what each miss adds. Doubling would give most classes more
    /// than they use.
    STACK_STEP_BYTES: usize = 8 << 10, "bytes", 5;
    /// The most blocks in such a step.
    STACK_STEP_BLOCKS_MAX: usize = 64, "blocks", 5;
    /// The fewest blocks in such a step.
    STACK_STEP_BLOCKS_MIN: usize = 2, "blocks", 5;
    /// Stacks of larger blocks get no capacity at first. One cached block may keep a whole span.
    LATE_BLOCK_BYTES: usize = 8 << 10, "bytes", 12;
    /// Misses until such a stack gets capacity.
    LATE_MISSES: u32 = 256, "misses", 12;
    /// Blocks in the smallest extent. These lie on the slab's first page.
    SMALLEST_EXTENT_BLOCKS: usize = 4, "blocks", 4;
    /// Blocks in the middle extent.
    MIDDLE_EXTENT_BLOCKS: usize = 32, "blocks", 4;
    /// The most bytes of blocks in one stack of a thread's own cache.
    THREAD_STACK_BYTES_MAX: usize = 32 << 10, "bytes", 4;
    /// Blocks that such a stack may hold, however large they are.
    THREAD_STACK_BLOCKS_MIN: usize = 4, "blocks", 4;
    /// What such a stack may hold whatever the number of threads.
    THREAD_STACK_BYTES_MIN: usize = 4 << 10, "bytes", 4;
    /// This many threads may fill their stacks. With more, all threads together may hold as much.
    FULL_THREADS_MAX: usize = 16, "threads", 4;
    /// Bytes at the end of a slab that are never touched. The processor prefetches past the last
    /// used line; the next lines would be the headers of another CPU's slab.
    SLAB_GAP_BYTES: usize = 4096, "bytes", 5;
    /// Marks of a slab. They tell whether a block lies in the slab already, or came from another
    /// CPU.
    MARKS: usize = 512, "marks", 15;
    /// The most threads with caches of their own. The address space of their slabs is chosen at
    /// once.
    THREAD_SLABS_MAX: usize = 16 << 10, "threads", 4;
    /// The most that the slabs of threads take, where addresses are limited.
    THREAD_SLABS_ADDRESS_DIVISOR: usize = 16, "of the address space", 4;
    /// Slabs of ended threads that keep their memory for later threads.
    WARM_SLABS_MAX: u32 = 32, "slabs", 4;
    /// Slabs of threads drained while their list is locked once. Threads that start or end wait for
    /// that.
    SLABS_PER_BATCH: usize = 64, "slabs", 17;
    /// The fewest CPUs with transfer caches.
    TRANSFER_CPUS_MIN: usize = 2, "CPUs", 29;
    /// The most transfer caches.
    TRANSFER_CACHES_MAX: usize = 16, "caches", 29;
    /// With fewer transfer caches, percpu mode does not use them because a lock is taken. Two CPUs
    /// seldom wait for each other at a central free list.
    TRANSFER_CACHES_MANY: usize = 4, "caches", 29;
    /// The most bytes of blocks in one transfer cache.
    TRANSFER_BYTES_MAX: usize = 256 << 10, "bytes", 29;
    /// The same with blocks of more than `LATE_BLOCK_BYTES`.
    LATE_TRANSFER_BYTES_MAX: usize = 4 << 20, "bytes", 39;

    /// The most blocks in one near cache.
    NEAR_BLOCKS_MAX: usize = 16, "blocks", 47;
    /// The most bytes of blocks in one near cache.
    NEAR_BYTES_MAX: usize = 2 << 20, "bytes", 47;
    /// The lowest such bound.
    NEAR_BYTES_MIN: usize = 256 << 10, "bytes", 47;
    /// All near caches together hold this share of the large blocks in use, between these bounds.
    NEAR_DIVISOR: usize = 8, "of large blocks in use", 47;
    /// The longest block in a near cache.
    NEAR_BLOCK_BYTES_MAX: usize = 1 << 20, "bytes", 47;
}
