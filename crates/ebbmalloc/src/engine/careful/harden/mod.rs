//! Implements harden mode (`EBB_HARDEN`): makes mistakes with blocks hard to exploit, and most of
//! them stop the program. It is for programs in production, so it may cost a little.
//!
//! As in check mode, all blocks are blocks of heaps, so no hot path knows of this mode. Blocks of
//! no heap of the program's come from a few default heaps that all threads share. There are
//! several, so that threads seldom wait for each other's locks. All knowledge of a block lies in
//! its span's record and in the seal after the block's end. Both are read under the heap's lock.

mod report;
mod large;

use crate::backend::page_heap::Granted;
use crate::backend::region::UnitIndex;
use crate::backend::span::hardened::Owner;
use crate::backend::units::Units;
use crate::central::heap_record::{Contents, HeapId, record};
use crate::engine::heap_blocks::AllocError;
use crate::engine::large::Moved;
use crate::engine::lookup::HeapBlock;
use crate::engine::tuning::DEFAULT_HEAPS_MAX;
use crate::engine::{DefaultHeaps, Engine};
use crate::platform::os::{Os, copy};
use crate::platform::sync::Guard;
use crate::safety::quarantine::{RING_BYTES, RING_UNITS};
use crate::safety::seal::{SEAL, first_written, open, seal, sealed_size};
use crate::size_class::{SizeClass, UNIT};
use report::Fault;
pub(crate) use report::Mistake;

/// Size of the smallest class with at most 2,048 blocks per span: see `backend/span/hardened.rs`.
const CLASS_BYTES_MIN: usize = 32;

/// The class of a block of this size with its seal; `None` for a large block.
fn class_for(size: usize, align: usize) -> Option<SizeClass> {
    SizeClass::of_aligned(size.saturating_add(SEAL).max(CLASS_BYTES_MIN), align)
}

impl<O: Os> Engine<O> {
    /// Sets harden mode up: makes the default heaps, for all blocks of no heap of the program's.
    /// Returns where their records lie; `None` while there is no memory for them.
    pub(crate) fn set_up_harden(&self) -> Option<DefaultHeaps> {
        let units = 1 + RING_UNITS;
        let heaps_max = self.os.cpus().clamp(1, DEFAULT_HEAPS_MAX) as u32;
        let alloc = |count| {
            let all = Units::new(units * count)?;
            let granted = self.pages().alloc(all, Units::ONE)?;
            Some((granted, count))
        };
        let (Granted { first, zeroed, .. }, count) = alloc(heaps_max).or_else(|| alloc(1))?;
        for nth in 0..count {
            self.add_hardened(first + nth * units, zeroed, usize::MAX);
        }
        // Blocks follow the last heap's rings. The guard stops programs that write before a block.
        let end = units as usize * UNIT;
        let used = (UNIT + RING_BYTES).next_multiple_of(self.os.page_size());
        if used < end {
            let mut pages = self.pages();
            // SAFETY: the units were just granted, and the rings of the last heap end at `used`.
            unsafe {
                let guard = self.region.address(first + (count - 1) * units).add(used);
                pages.guards.set_up(&self.os, guard);
                pages.guards.place(&self.os, guard, end - used);
            }
        }
        Some(DefaultHeaps { first, count, units })
    }

    /// Makes a hardened heap whose record and rings lie in the caller's units from `first` on.
    #[inline(never)]
    pub(crate) fn add_hardened(&self, first: UnitIndex, zeroed: bool, limit: usize) -> HeapId {
        if !zeroed {
            // SAFETY: the caller owns these units: a heap's record, then its rings.
            unsafe {
                self.region.address(first + 1).write_bytes(0, RING_UNITS as usize * UNIT);
            }
        }
        let mut heaps = self.heaps.lock();
        let id = heaps.add(&self.region, first, limit);
        if let Some(heap) = record(&self.region, first) {
            heap.contents().lock().harden(self.os.random());
        }
        id
    }

    /// Gives all heaps new random numbers in the child of a fork. Its parent, and other children,
    /// have the old ones.
    pub(crate) fn reseed(&self) {
        // A taken lock is this thread's own: it forked in a signal handler that interrupted the
        // engine.
        let Some(heaps) = self.heaps.try_lock() else { return };
        for heap in heaps.each(&self.region) {
            if let Some(mut contents) = heap.contents().try_lock() {
                contents.reseed(self.os.random());
            }
        }
    }

    /// Allocates a block from this heap. Returns also whether it reads as zero; `None` without
    /// memory, or beyond the heap's limit.
    #[inline(never)]
    pub(crate) fn alloc_hardened(
        &self,
        heap: UnitIndex,
        size: usize,
        align: usize,
        replaced: usize,
    ) -> Option<(*mut u8, bool)> {
        // The program may access no byte of a block of size 0. So it is a large block, with all of
        // its run inaccessible.
        let is_inaccessible = size == 0 && self.pages.lock().guards.are_left();
        let class = if is_inaccessible { None } else { class_for(size, align) };
        let alloc = || match class {
            Some(class) => self.alloc_small_hardened(heap, class, size, replaced),
            None => self.alloc_large_hardened(heap, size, align, replaced),
        };
        let granted = alloc().or_else(|error| {
            let padded = size.checked_add(if class.is_some() { SEAL } else { self.os.page_size() });
            match error {
                _ if !padded.is_some_and(|padded| self.could_hold_in_heap(heap, padded, align)) => {
                    return Err(error);
                }
                AllocError::OutOfMemory => self.empty_quarantines(),
                AllocError::OverLimit => {
                    let emptied = self.empty_quarantine(&mut self.lock_heap(heap), heap);
                    self.abort_on_mistake(emptied);
                }
            }
            alloc()
        });
        granted.ok()
    }

    fn alloc_small_hardened(
        &self,
        heap: UnitIndex,
        class: SizeClass,
        size: usize,
        replaced: usize,
    ) -> Result<(*mut u8, bool), AllocError> {
        let mut contents = self.contents_for(heap, class.size(), replaced)?;
        let random = contents.random.next();
        let spans = &mut contents.spans[class.index()];
        let spans_before = spans.counts.spans;
        let claimed = spans.claim_random(&self.memory(), class, random);
        let (block, is_fresh) = claimed.ok_or(AllocError::OutOfMemory)?;
        let has_grown = spans.counts.spans > spans_before;
        contents.used += class.size();
        self.count_alloc(class.size());
        // SAFETY: the block was just claimed, is of this class, and no program has it yet.
        let written = match is_fresh {
            true => None,
            false => unsafe { first_written(block, class.size()) },
        };
        if let Some(at) = written {
            drop(contents);
            self.report_mistake(Mistake { block, fault: Fault::Written(at) }, "malloc");
        }
        // SAFETY: as before; the class was chosen for `size` plus the seal.
        unsafe { seal(self.setup().secret, block, size, class.size()) };
        drop(contents);
        if has_grown {
            self.start_scavenger_if_due();
        }
        Ok((block, true))
    }

    /// Checks a block that is about to be freed or resized, `given` its size if the caller passed
    /// one. Returns its size, or the fault.
    fn judge_hardened(
        &self,
        contents: &Contents,
        block: &HeapBlock,
        given: Option<usize>,
    ) -> Result<usize, Fault> {
        let (secret, address) = (self.setup().secret, block.address);
        let size = match block.class {
            None => self.open_large(block)?,
            Some(class) => {
                let spans = &contents.spans[class.index()];
                let (owner, before) = spans.owners(&self.region, class, block.first, address);
                match owner {
                    Owner::Program => {}
                    Owner::Nobody => return Err(Fault::Freed),
                    Owner::Missing => return Err(Fault::Invalid),
                }
                // SAFETY: a block of this class has as many bytes.
                let size = unsafe { open(secret, address, class.size()) }?;
                // A write before this block breaks the end of the block before: a seal, or zeros.
                let bytes = class.size();
                // SAFETY: unless it is missing, a block of the same class lies before this one.
                let is_intact_before = before == Owner::Missing
                    || unsafe {
                        let block_before = address.sub(bytes);
                        match before {
                            Owner::Program => sealed_size(secret, block_before, bytes).is_some(),
                            _ => block_before.add(bytes - SEAL).cast::<u64>().read() == 0,
                        }
                    };
                if !is_intact_before {
                    return Err(Fault::Before);
                }
                size
            }
        };
        match given {
            Some(given) if given != size => Err(Fault::Size(given, size)),
            _ => Ok(size),
        }
    }

    /// Locks the heap of a block that is about to be freed or resized, and checks the block.
    /// Returns the guard and the block's size. A fault stops the program.
    #[inline(never)]
    pub(super) fn lock_and_judge(
        &self,
        block: &HeapBlock,
        given: Option<usize>,
        operation: &str,
    ) -> (Guard<'_, Contents>, usize) {
        let fault = match self.lock_owner(block) {
            None => Fault::Freed,
            Some(contents) => match self.judge_hardened(&contents, block, given) {
                Ok(size) => return (contents, size),
                Err(fault) => fault,
            },
        };
        self.report_mistake(Mistake { block: block.address, fault }, operation)
    }

    /// Frees a block, and puts it in quarantine. A `given` size is compared with the block's.
    #[inline(never)]
    pub(crate) fn free_hardened(&self, block: HeapBlock, given: Option<usize>, operation: &str) {
        let (mut contents, size) = self.lock_and_judge(&block, given, operation);
        let Some(class) = block.class else {
            self.retire_large(&mut contents, &block, size, false);
            drop(contents);
            return self.notify_scavenger();
        };
        // SAFETY: the program has freed the block, and it cannot be handed out again before it is
        // released. A block of this class has as many bytes.
        unsafe { block.address.write_bytes(0, class.size()) };
        let contents_of_heap = &mut *contents;
        let spans = &mut contents_of_heap.spans[class.index()];
        spans.hold(&self.region, class, block.first, block.address);
        let random = contents_of_heap.random.next();
        let oldest = contents_of_heap.quarantine.push(
            &self.region,
            block.heap,
            class,
            block.address,
            random,
        );
        let released = match oldest.is_null() {
            true => Ok(false),
            false => self.release_quarantined(&mut contents, class, oldest),
        };
        drop(contents);
        // Only for whole spans: reading the clock takes longer than all the rest of this call.
        if self.abort_on_mistake(released) {
            self.notify_scavenger();
        }
    }

    /// Returns a block that left the quarantine to its span. True if the span went back to the page
    /// heap, as it was idle.
    #[inline(never)]
    fn release_quarantined(
        &self,
        contents: &mut Contents,
        class: SizeClass,
        block: *mut u8,
    ) -> Result<bool, Mistake> {
        // SAFETY: the block comes from the quarantine, so no program has it, and it is of this
        // class.
        if let Some(at) = unsafe { first_written(block, class.size()) } {
            return Err(Mistake { block, fault: Fault::Written(at) });
        }
        let spans = &mut contents.spans[class.index()];
        let spans_before = spans.counts.spans;
        spans.release_held(&self.region, class, block);
        let released = spans.release(&self.memory(), class, &[block]);
        released.map_err(|_| Mistake { block, fault: Fault::Invalid })?;
        let has_shrunk = spans.counts.spans < spans_before;
        contents.used -= class.size();
        self.count_free(class.size());
        Ok(has_shrunk)
    }

    /// Releases all blocks in the quarantine of the heap whose record lies at this unit.
    pub(crate) fn empty_quarantine(
        &self,
        contents: &mut Contents,
        heap: UnitIndex,
    ) -> Result<(), Mistake> {
        for class in SizeClass::all() {
            loop {
                let block = contents.quarantine.pop(&self.region, heap, class);
                if block.is_null() {
                    break;
                }
                self.release_quarantined(contents, class, block)?;
            }
        }
        self.release_large(contents);
        Ok(())
    }

    /// Releases all blocks in the quarantines of all heaps.
    fn empty_quarantines(&self) {
        let heaps = self.heaps.lock();
        let emptied = heaps
            .each(&self.region)
            .try_for_each(|heap| self.empty_quarantine(&mut heap.contents().lock(), heap.unit()));
        drop(heaps);
        self.abort_on_mistake(emptied);
    }

    /// The requested size of a block. A fault stops the program.
    pub(crate) fn size_hardened(&self, block: &HeapBlock, operation: &str) -> usize {
        self.lock_and_judge(block, None, operation).1
    }

    /// Resizes a block. Returns null without memory, or beyond the heap's limit.
    pub(crate) fn realloc_hardened(
        &self,
        block: &HeapBlock,
        size: usize,
        align: usize,
        operation: &str,
    ) -> *mut u8 {
        let (contents, old) = self.lock_and_judge(block, None, operation);
        let class = class_for(size, align);
        if let Some(class) = class
            && block.class == Some(class)
        {
            // SAFETY: the program owns the block, and waits for this call. The class has room for
            // `size` bytes and the seal. The bytes cleared are those that the block gains.
            unsafe {
                block.address.add(old.min(size)).write_bytes(0, size.saturating_sub(old));
                seal(self.setup().secret, block.address, size, class.size());
            }
            return block.address;
        }
        let both_large = class.is_none() && block.class.is_none();
        if both_large
            && block.address.addr().is_multiple_of(align)
            && self.resize_large_hardened(block, old, size)
        {
            return block.address;
        }
        drop(contents);
        let granted = self.alloc_hardened(block.heap, size, align, block.usable);
        let (new, _) = self.or_null(granted, block.heap, size);
        if new.is_null() {
            return new;
        }
        match if both_large { self.move_contents(block, old, new, size) } else { Moved::No } {
            Moved::Yes | Moved::Stuck => new,
            Moved::TargetLost => self.or_null(None, block.heap, size).0,
            Moved::No => {
                // SAFETY: two distinct blocks. The old one has `old` bytes, the new one `size`.
                unsafe { copy(block.address, new, old.min(size)) };
                self.free_hardened(*block, None, operation);
                new
            }
        }
    }

    /// Checks all blocks in quarantine, at exit. A write to one stops the program.
    pub(crate) fn finish_harden(&self) {
        let heaps = self.heaps.lock();
        let mut written = None;
        for heap in heaps.each(&self.region) {
            let contents = &mut *heap.contents().lock();
            for class in SizeClass::all() {
                let mut quarantined = contents.quarantine.each(&self.region, heap.unit(), class);
                // SAFETY: the block is in quarantine, so no program has it, and it is of this
                // class.
                let found = quarantined.find_map(|block| {
                    let at = unsafe { first_written(block, class.size()) }?;
                    Some(Mistake { block, fault: Fault::Written(at) })
                });
                written = written.or(found);
            }
        }
        drop(heaps);
        if let Some(mistake) = written {
            self.report_mistake(mistake, "exit");
        }
    }
}
