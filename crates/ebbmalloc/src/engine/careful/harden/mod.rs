//! Hardening (`EBB_HARDEN`): mistakes with blocks are made hard to exploit, and most stop the program. For programs in production,
//! so it may cost, but not much.
//!
//! As in check mode all blocks are blocks of heaps, and no hot path knows. There are some heaps that programs did not make, a few for
//! all threads, so that these seldom wait for each other's locks; everything that is known of a block lies in its span's record and, sealed,
//! behind the block's end, and is looked at under the heap's lock.

mod report;
mod large;

use core::ptr;

use crate::backend::page_heap::Granted;
use crate::backend::region::UnitIndex;
use crate::backend::span::hardened::Owner;
use crate::backend::units::Units;
use crate::central::heap_record::{Contents, HeapId};
use crate::engine::tuning::DEFAULT_HEAPS_MAX;
use crate::engine::{DefaultHeaps, Engine};
use crate::engine::{careful::heap_blocks::Short, lookup::HeapBlock};
use crate::platform::os::Os;
use crate::platform::sync::Guard;
use crate::safety::quarantine::{RING_BYTES, RING_UNITS};
use crate::safety::seal::{SEAL, first_written, open, seal, sealed_size};
use crate::size_class::{SizeClass, UNIT};
use report::Fault;
pub(crate) use report::Mistake;

/// Bytes of the smallest class with at most 2,048 blocks a span: `span/hardened.rs`.
const LEAST: usize = 32;

/// The class of a block of this size with its seal; `None` for a large one.
fn class_for(size: usize, align: usize) -> Option<SizeClass> {
    SizeClass::of_aligned(size.saturating_add(SEAL).max(LEAST), align)
}

impl<O: Os> Engine<O> {
    /// What set-up does for hardening: where the heaps' records lie of all blocks that are no other heap's; `None` while there
    /// is no memory for them.
    pub(crate) fn set_up_harden(&self) -> Option<DefaultHeaps> {
        let (units, most) = (1 + RING_UNITS, self.os.cpus().clamp(1, DEFAULT_HEAPS_MAX) as u32);
        let alloc = |count| {
            let all = Units::new(units * count)?;
            let granted = self.pages.lock().alloc(&self.region, &self.os, all, Units::ONE)?;
            Some((granted, count))
        };
        let (Granted { first, zeroed }, count) = alloc(most).or_else(|| alloc(1))?;
        for home in 0..count {
            self.add_hardened(first + home * units, zeroed, usize::MAX);
        }
        // Behind the last of them come blocks, which programs write before, too.
        let end = units as usize * UNIT;
        let used = (UNIT + RING_BYTES).next_multiple_of(self.os.page_size());
        if used < end {
            let mut pages = self.pages.lock();
            // SAFETY: nothing else is in the last of these units.
            unsafe {
                let behind = self.region.address(first + (count - 1) * units).add(used);
                pages.guards.set_up(&self.os, behind);
                pages.guards.place(&self.os, behind, end - used);
            }
        }
        Some(DefaultHeaps { first, count, units })
    }

    /// Makes a hardened heap in these units.
    #[inline(never)]
    pub(crate) fn add_hardened(&self, first: UnitIndex, zeroed: bool, limit: usize) -> HeapId {
        if !zeroed {
            // SAFETY: the caller's units.
            unsafe {
                self.region.address(first + 1).write_bytes(0, RING_UNITS as usize * UNIT);
            }
        }
        let mut heaps = self.heaps.lock();
        let id = heaps.add(&self.region, first, limit);
        if let Some(heap) = heaps.at(&self.region, first) {
            heap.contents().lock().harden(self.os.random());
        }
        id
    }

    /// New random numbers, in the child of a fork: its parent and others of its children have the old.
    pub(crate) fn reseed(&self) {
        // A lock that is taken is taken below the signal handler that forked, by this very thread.
        let Some(heaps) = self.heaps.try_lock() else { return };
        for heap in heaps.each(&self.region) {
            if let Some(mut contents) = heap.contents().try_lock() {
                contents.reseed(self.os.random());
            }
        }
    }

    /// A block of this heap, and whether it reads as zero; `None` if memory is short.
    #[inline(never)]
    pub(crate) fn alloc_hardened(
        &self,
        heap: UnitIndex,
        size: usize,
        align: usize,
        replaced: usize,
    ) -> Option<(*mut u8, bool)> {
        // Nothing may be read or written where nothing was asked for: all of a large block's run is out of reach then.
        let nothing = size == 0 && self.pages.lock().guards.are_left();
        let class = if nothing { None } else { class_for(size, align) };
        let alloc = || match class {
            Some(class) => self.alloc_small_hardened(heap, class, size, replaced),
            None => self.alloc_large_hardened(heap, size, align, replaced),
        };
        let granted = alloc().or_else(|short| {
            // A small block has its class, whatever is behind it.
            let padded = size.checked_add(if class.is_some() { SEAL } else { self.os.page_size() });
            match short {
                _ if !padded.is_some_and(|padded| self.could_hold_in_heap(heap, padded, align)) => {
                    return Err(short);
                }
                Short::OfMemory => self.empty_quarantines(),
                Short::ByLimit => {
                    let emptied = self.empty_quarantine(&mut self.contents_of(heap), heap);
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
    ) -> Result<(*mut u8, bool), Short> {
        let mut contents = self.contents_for(heap, class.size(), replaced)?;
        let random = contents.random.next();
        let spans = &mut contents.spans[class.index()];
        let before = spans.counts.spans;
        let claimed = spans.claim_random(&self.region, &self.os, &self.pages, class, random);
        let claimed = claimed.ok_or(Short::OfMemory)?;
        let (block, has_grown) = (claimed.block, spans.counts.spans > before);
        contents.used += class.size();
        if self.counting() {
            self.count_alloc(class.size());
        }
        // SAFETY: the block is ours yet, and of this class.
        let written = match claimed.fresh {
            true => None,
            false => unsafe { first_written(block, class.size()) },
        };
        if let Some(at) = written {
            drop(contents);
            self.report_mistake(Mistake { block, fault: Fault::Written(at) }, "malloc");
        }
        // SAFETY: as above.
        unsafe { seal(self.setup().secret, block, size, class.size()) };
        drop(contents);
        if has_grown {
            self.start_scavenger_if_due();
        }
        Ok((block, !claimed.fresh))
    }

    /// The heap of a block that seems to be one's, locked; if it still is.
    pub(super) fn owner_of(&self, block: &HeapBlock) -> Option<Guard<'_, Contents>> {
        let contents = self.heap_at(block.heap)?.contents().lock();
        let now = self.heap_block(block.address)?;
        let same = (now.heap, now.first, now.class) == (block.heap, block.first, block.class);
        same.then_some(contents)
    }

    /// The size of a block that may be freed or resized, or what is wrong with that.
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
                    Owner::Missing => return Err(Fault::Foreign),
                }
                // SAFETY: the block has as many bytes.
                let size = unsafe { open(secret, address, class.size()) }?;
                // Whoever writes before a block writes behind the one before it.
                let bytes = class.size();
                // SAFETY: so is there one before it, of the same class.
                let whole = before == Owner::Missing
                    || unsafe {
                        let before_it = address.sub(bytes);
                        match before {
                            Owner::Program => sealed_size(secret, before_it, bytes).is_some(),
                            _ => before_it.add(bytes - SEAL).cast::<u64>().read() == 0,
                        }
                    };
                if !whole {
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

    /// The heap of a block, locked, and the block's size. What may not be freed or resized stops the program.
    #[inline(never)]
    pub(super) fn judged(
        &self,
        block: &HeapBlock,
        given: Option<usize>,
        operation: &str,
    ) -> (Guard<'_, Contents>, usize) {
        let fault = match self.owner_of(block) {
            None => Fault::Freed,
            Some(contents) => match self.judge_hardened(&contents, block, given) {
                Ok(size) => return (contents, size),
                Err(fault) => fault,
            },
        };
        self.report_mistake(Mistake { block: block.address, fault }, operation)
    }

    /// Frees a block, if with a size, then with this one.
    #[inline(never)]
    pub(crate) fn free_hardened(&self, block: HeapBlock, given: Option<usize>, operation: &str) {
        let (mut contents, size) = self.judged(&block, given, operation);
        let Some(class) = block.class else {
            self.retire_large(&mut contents, &block, size, false);
            drop(contents);
            return self.wake_scavenger();
        };
        // SAFETY: the program has given it up, and nobody else has it yet.
        unsafe { block.address.write_bytes(0, class.size()) };
        let contents_of_heap = &mut *contents;
        let spans = &mut contents_of_heap.spans[class.index()];
        spans.hold(&self.region, class, block.first, block.address);
        let random = contents_of_heap.random.next();
        let leaves = contents_of_heap.quarantine.push(
            &self.region,
            block.heap,
            class,
            block.address,
            random,
        );
        let released = match leaves.is_null() {
            true => Ok(false),
            false => self.release_held(&mut contents, class, leaves),
        };
        drop(contents);
        // Looking at the time takes longer than all the rest.
        if self.abort_on_mistake(released) {
            self.wake_scavenger();
        }
    }

    /// Releases a block that was held back. True if a span went with it.
    #[inline(never)]
    fn release_held(
        &self,
        contents: &mut Contents,
        class: SizeClass,
        block: *mut u8,
    ) -> Result<bool, Mistake> {
        // SAFETY: the block is in quarantine, so nobody's.
        if let Some(at) = unsafe { first_written(block, class.size()) } {
            return Err(Mistake { block, fault: Fault::Written(at) });
        }
        let spans = &mut contents.spans[class.index()];
        let before = spans.counts.spans;
        spans.release_held(&self.region, class, block);
        let released = spans.release(&self.region, &self.os, &self.pages, class, &[block]);
        released.map_err(|_| Mistake { block, fault: Fault::Foreign })?;
        let has_shrunk = spans.counts.spans < before;
        contents.used -= class.size();
        if self.counting() {
            self.count_free(class.size());
        }
        Ok(has_shrunk)
    }

    /// Releases all that a heap, of which the record lies at this unit, holds back.
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
                self.release_held(contents, class, block)?;
            }
        }
        self.release_large(contents);
        Ok(())
    }

    /// The same for all heaps.
    fn empty_quarantines(&self) {
        let heaps = self.heaps.lock();
        let emptied = heaps
            .each(&self.region)
            .try_for_each(|heap| self.empty_quarantine(&mut heap.contents().lock(), heap.unit()));
        drop(heaps);
        self.abort_on_mistake(emptied);
    }

    /// What a block was asked for with. One that is none of the program's stops the program.
    pub(crate) fn size_hardened(&self, block: &HeapBlock, operation: &str) -> usize {
        self.judged(block, None, operation).1
    }

    /// Resizes a block; null if memory is short.
    pub(crate) fn realloc_hardened(
        &self,
        block: &HeapBlock,
        size: usize,
        align: usize,
        operation: &str,
    ) -> *mut u8 {
        let (contents, old) = self.judged(block, None, operation);
        let class = class_for(size, align);
        if let Some(class) = class
            && block.class == Some(class)
        {
            // SAFETY: the block is the program's, which waits; what was behind its end is in it now.
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
        let (new, _) = self.or_null(self.alloc_hardened(block.heap, size, align, block.usable));
        if new.is_null() || both_large && self.move_contents(block, old, new, size) {
            return new;
        }
        // SAFETY: both blocks are as large, and distinct.
        unsafe { ptr::copy_nonoverlapping(block.address, new, old.min(size)) };
        self.free_hardened(*block, None, operation);
        new
    }

    /// Looks at all blocks that are held back. One that was written to stops the program.
    pub(crate) fn finish_harden(&self) {
        let heaps = self.heaps.lock();
        let mut written = None;
        for heap in heaps.each(&self.region) {
            let contents = &mut *heap.contents().lock();
            for class in SizeClass::all() {
                let mut held = contents.quarantine.each(&self.region, heap.unit(), class);
                // SAFETY: in quarantine, so nobody's, and all zero since it was put there.
                let found = held.find_map(|block| {
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
