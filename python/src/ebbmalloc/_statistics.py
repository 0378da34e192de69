"""What the statistics are made of. Written by EBB_BLESS=1 cargo test, from their declaration in Rust."""

from __future__ import annotations

from typing import TypedDict


class ClassStats(TypedDict):
    """A size class in use."""

    #: Bytes in a block.
    block_bytes: int
    #: Spans cut into blocks of the class.
    spans: int
    #: Blocks that the program holds.
    live: int
    #: Free blocks in caches.
    cached: int
    #: Free blocks in spans.
    free: int
    #: Bytes in free blocks of spans that are not resident.
    hole_bytes: int
    #: Batches of blocks that went to caches.
    refills: int
    #: Batches that came back.
    flushes: int


class Stats(TypedDict):
    """The whole process, at one moment."""

    #: In blocks that the program holds, as rounded up to their size classes.
    live_bytes: int
    #: The most that `live_bytes` has been; with several threads, within 128 KiB. Counted with `EBB_STATS` only, else 0.
    peak_bytes: int
    #: In all blocks ever handed out. Counted with `EBB_STATS` only, else 0.
    allocated_bytes: int
    #: In all blocks ever freed. Counted with `EBB_STATS` only, else 0.
    freed_bytes: int
    #: In free blocks that caches hold, of virtual CPUs or of threads.
    cached_bytes: int
    #: In free blocks of spans that also have blocks in use, as far as they are resident.
    pinned_bytes: int
    #: In free blocks of spans that are not resident: their OS pages were not touched yet, or went back to the kernel.
    hole_bytes: int
    #: In spans behind their last blocks, and in records of heaps.
    end_bytes: int
    #: In free runs that still are resident.
    dirty_bytes: int
    #: Of free memory, so much may stay resident because as much that had been returned to the kernel was soon wanted back.
    wanted_bytes: int
    #: In blocks above 64 KiB that the program holds, each a run of its own.
    large_bytes: int
    #: Of `live_bytes`, the most that may be due to rounding what was asked for up to size classes, or to 64 KiB.
    rounding_bytes: int
    #: Of `live_bytes`, in blocks of heaps that the program made (`ebb_heap_new`, `Heap`).
    heap_bytes: int
    #: Of `live_bytes`, in sampled blocks (`EBB_SAMPLE`).
    sampled_bytes: int
    #: Blocks sampled since the start.
    sampled_blocks: int
    #: Heaps that the program made and has not deleted.
    heaps: int
    #: What counts against `EBB_LIMIT`: units in use or free and resident, and their tables.
    held_bytes: int
    #: The most that `held_bytes` may be, in whole units of 64 KiB with their tables; 0 for no limit.
    limit_bytes: int
    #: What the process may have by its control group or the machine, as set-up found it; 0 where nothing says.
    memory_bytes: int
    #: Address space made usable, in use or not, resident or not.
    committed_bytes: int
    #: Address space of the tables that describe it.
    table_bytes: int
    #: Address space of the slabs, in which caches have their lists.
    slab_bytes: int
    #: Memory returned to the kernel since the start.
    purged_bytes: int
    #: In free blocks of spans, returned to the kernel since the start: whole OS pages of them.
    dug_bytes: int
    #: System calls that returned `purged_bytes`.
    purges: int
    #: Blocks above 64 KiB that the program holds.
    large_blocks: int
    #: Spans, all size classes together.
    spans: int
    #: Batches of blocks that went from spans to caches.
    refills: int
    #: Batches that went back.
    flushes: int
    #: Time since the process started.
    elapsed_us: int
    #: CPU time in user mode, of the process.
    user_us: int
    #: CPU time in the kernel, of the process.
    system_us: int
    #: Page faults of the process served without storage.
    minor_faults: int
    #: Page faults of the process that read storage.
    major_faults: int
    #: Resident memory of the process, whoever allocated it.
    resident_bytes: int
    #: The most that `resident_bytes` has been.
    peak_resident_bytes: int
    #: Of the library.
    version: str
    #: The front end in force: "percpu", "thread" or "slot".
    mode: str
    #: Why this one.
    why: str
    #: What picks the cache in percpu mode, "mm_cid" or "cpu_id"; else empty.
    id: str
    #: Modes that would work too.
    others: str
    #: Why percpu mode would not; else empty.
    no_percpu: str
    #: What is done with blocks: "check", "harden", "sample" (EBB_CHECK and so on); else empty.
    care: str
    #: Its version, such as "6.18".
    kernel: str
    #: Those in use.
    classes: list[ClassStats]
