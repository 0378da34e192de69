//! Where all blocks are blocks of heaps: in check mode, and where mistakes are made hard to exploit. Each call comes here and goes on
//! to what looks at blocks; so do the calls for blocks of heaps that programs make, in any mode.

#[cfg(not(loom))]
pub(crate) mod check;
#[cfg(not(loom))]
pub(crate) mod harden;
#[cfg(not(loom))]
pub(crate) mod sample;
#[cfg(not(loom))]
pub(crate) mod backtrace;

use core::ptr;

use crate::engine::{Care, Engine, Homes};
use crate::central::heap_record::HeapId;
use crate::engine::user_heaps::HeapBlock;
use crate::platform::options::{CAREFUL, CheckChoice, HardenChoice, Options};
use crate::platform::os::Os;
use crate::backend::region::UnitIndex;
use crate::platform::message::Line;

impl<O: Os> Engine<O> {
    /// What set-up does: which care is taken, and where the heaps lie that all blocks are of that are no other's. `None` while
    /// memory is too short for that: a program that asked for care does not run without.
    pub(crate) fn set_up_care(&self, options: &Options) -> Option<(Care, Homes)> {
        if !CAREFUL {
            if options.is_careful() {
                let text = format_args!(
                    "EBB_CHECK, EBB_HARDEN and EBB_SAMPLE are ignored: this program has ebbmalloc without its feature `careful`"
                );
                Line::print(&self.os, text);
            }
            return Some((Care::None, Homes::NONE));
        }
        if options.check != CheckChoice::Off {
            let first = self.set_up_check()?;
            if options.harden != HardenChoice::Off {
                let text =
                    format_args!("EBB_HARDEN is ignored: EBB_CHECK looks at each block already");
                Line::print(&self.os, text);
            }
            return Some((Care::Checked, Homes { first, count: 1, units: 1 }));
        }
        match options.harden {
            HardenChoice::Off => Some((Care::None, Homes::NONE)),
            HardenChoice::On => self.set_up_harden().map(|homes| (Care::Hardened, homes)),
        }
    }

    /// Which care is taken of blocks.
    #[inline]
    pub(crate) fn care(&self) -> Care {
        if CAREFUL { self.setup().care } else { Care::None }
    }

    /// Whether all blocks are blocks of heaps.
    #[inline]
    pub(crate) fn all_in_heaps(&self) -> bool {
        self.care() != Care::None
    }

    /// Whether it is known to the byte what each block was asked for with, so that sized frees can be compared.
    #[inline]
    pub fn knows_sizes(&self) -> bool {
        self.all_in_heaps()
    }

    /// The same of this block: then what follows its end is not the program's.
    #[inline]
    pub(crate) fn knows_size_of(&self, block: *mut u8) -> bool {
        self.knows_sizes() || self.is_sampled(block)
    }

    /// Units that the record of a heap takes.
    pub(crate) fn heap_units(&self) -> u32 {
        self.setup().homes.units.max(1)
    }

    /// A heap for a block that is to be no other's: one that nobody is in, if there is one, the thread's own first.
    #[inline]
    fn home(&self) -> UnitIndex {
        let Homes { first, count, units } = self.setup().homes;
        if count == 1 {
            return first;
        }
        // Multiplied, since threads' keys may have a large divisor in common.
        let key = (self.os.thread_key() as u32).wrapping_mul(0x9e37_79b9) >> 16;
        let own = key % count;
        let homes = (own..count).chain(0..own).map(|nth| first + nth * units);
        homes.into_iter().find(|&home| self.is_free(home)).unwrap_or(first + own * units)
    }

    /// A block of no heap that a program made, and whether it reads as zero.
    pub(crate) fn alloc_at_home(&self, size: usize, align: usize) -> (*mut u8, bool) {
        self.alloc_in(self.home(), size, align, 0)
    }

    /// A block of a heap, in place of one of `replaced` bytes that is freed next; and whether it reads as zero.
    #[inline(never)]
    pub(crate) fn alloc_in(
        &self,
        heap: UnitIndex,
        size: usize,
        align: usize,
        replaced: usize,
    ) -> (*mut u8, bool) {
        let granted = match self.care() {
            Care::None => self.alloc_unchecked(heap, size, align, replaced),
            Care::Checked => self.alloc_checked(heap, size, align, replaced),
            Care::Hardened => self.alloc_hardened(heap, size, align, replaced),
        };
        granted.unwrap_or_else(|| {
            self.os.out_of_memory();
            (ptr::null_mut(), false)
        })
    }

    /// Frees a block of a heap.
    pub(crate) fn free_in_heap(&self, block: HeapBlock, operation: &str) {
        match self.care() {
            Care::None => self.free_unchecked(block, operation),
            Care::Checked => self.free_checked(block.address, None, operation),
            Care::Hardened => self.free_hardened(block, None, operation),
        }
    }

    /// Frees an address with a size, where all blocks are blocks of heaps.
    pub(crate) fn free_sized_in_heap(&self, block: *mut u8, size: usize) {
        match self.heap_block(block) {
            None => self.free_slow(block, "free"),
            Some(found) if self.hardening() => self.free_hardened(found, Some(size), "free"),
            Some(_) => self.free_checked(block, Some(size), "free"),
        }
    }

    /// Bytes of a heap's block that may be used.
    pub(crate) fn size_in_heap(&self, block: HeapBlock, operation: &str) -> usize {
        match self.care() {
            Care::None => block.usable,
            Care::Checked => self.size_checked(block.address, operation),
            Care::Hardened => self.size_hardened(&block, operation),
        }
    }

    /// Resizes a block of a heap, whichever that is; it stays that heap's.
    ///
    /// # Safety
    /// As for [`Engine::realloc`].
    #[inline(never)]
    pub(crate) unsafe fn realloc_in_heap(
        &self,
        block: HeapBlock,
        size: usize,
        align: usize,
        operation: &str,
    ) -> *mut u8 {
        match self.care() {
            // SAFETY: the caller's.
            Care::None => unsafe { self.realloc_unchecked(block, size, align, operation) },
            Care::Checked => self.realloc_checked(block, size, align, operation),
            Care::Hardened => self.realloc_hardened(&block, size, align, operation),
        }
    }

    /// Looks at the blocks of a heap that is about to be deleted.
    pub(crate) fn before_delete(&self, id: HeapId, operation: &str) {
        match self.care() {
            Care::None => {}
            Care::Checked => self.delete_checked(id, operation),
            Care::Hardened => {
                let heap = id.unit();
                let emptied = self.empty_quarantine(&mut self.contents_of(heap), heap);
                self.insist_on(emptied);
            }
        }
    }

    /// What is done when the process exits.
    pub(crate) fn finish_care(&self) {
        match self.care() {
            Care::None => {}
            Care::Checked => self.finish_check(),
            Care::Hardened => self.finish_harden(),
        }
    }
}
