//! The restartable sequences for AArch64: as those for x86-64 (`x86_64.rs`, `docs/rseq.md`), for a
//! processor that keeps less order.
//!
//! A push commits by a store-release: a thread that sees the new header sees the block below it.
//! The child of a fork needs that, as no barrier orders what it sees. The kernel orders what all
//! other readers see: `docs/rseq.md` says how.

use core::arch::asm;

use super::PerCpuBase;
use crate::frontend::slab::{
    HEADERS_AT, Header, MARK_MULTIPLIER, MARK_SHIFT, MARKS_AT, SLAB_SHIFT, mark_at,
};
use crate::platform::os::RseqArea;
use crate::size_class::SizeClass;

/// Emits a restartable sequence. The body runs with `{slab}` at the virtual CPU's slab and ends
/// with its committing store. It gives up by a jump, to `9f` behind its end or to a label of the
/// caller's. Instructions that each try needs before it begins come first. Clobbers `{slab}` and
/// flags.
macro_rules! sequence {
    (
        $base:expr, give up by $leave:literal;
        $($prepare:literal),* ; $($body:literal),+ ; $($operands:tt)*
    ) => {
        asm!(
            // The descriptor: version and flags, start, length, abort handler.
            ".pushsection __rseq_cs, \"aw\"",
            ".balign 32",
            "77: .long 0, 0",
            ".quad 33f, 44f - 33f, 55f",
            ".popsection",
            // The abort handler, behind the signature that the kernel requires (glibc's choice, an
            // instruction that traps).
            ".pushsection .text.ebb_rseq_abort, \"ax\"",
            ".balign 4",
            ".inst 0xd428bc00",
            "55: b 66f",
            ".popsection",
            "mrs {thread}, tpidr_el0",
            "add {area}, {area}, {thread}",
            "66:",
            $($prepare,)*
            // The kernel does not restart a thread that is not registered: its `cpu_id` is below 0.
            "ldr {slab:w}, [{area}, #{cpu_id}]",
            concat!("tbnz {slab:w}, #31, ", $leave),
            "adrp {slab}, 77b",
            "add {slab}, {slab}, :lo12:77b",
            "str {slab}, [{area}, #{rseq_cs}]",
            "33:",
            "ldr {slab:w}, [{thread}, {id_at}]",
            "cmp {slab:w}, {count:w}",
            concat!("b.hs ", $leave),
            "add {slab}, {slabs}, {slab}, lsl #{shift}",
            $($body,)+
            "44:",
            "9:",
            cpu_id = const RseqArea::CPU_ID,
            rseq_cs = const RseqArea::RSEQ_CS,
            id_at = in(reg) $base.id_at,
            area = inout(reg) $base.area => _,
            slabs = in(reg) $base.slabs_and_count & (usize::MAX << SLAB_SHIFT),
            count = in(reg) $base.slabs_and_count & 0xffff,
            shift = const SLAB_SHIFT,
            thread = out(reg) _,
            slab = out(reg) _,
            // In a program of more than 128 MiB the linker may put a stub between handler and
            // sequence, which uses these.
            out("x16") _,
            out("x17") _,
            $($operands)*
            options(nostack),
        )
    };
}

/// Offset of the class's header in a slab.
#[inline(always)]
fn header_at(class: SizeClass) -> usize {
    HEADERS_AT + class.index() * size_of::<Header>()
}

/// Takes the newest block; null if the stack is empty, or if this thread has no cache.
///
/// # Safety
/// `base` is set up.
#[inline(always)]
pub(crate) unsafe fn pop(base: PerCpuBase, class: SizeClass) -> *mut u8 {
    let block: *mut u8;
    // SAFETY: the slabs are ours. The bottom slot of each stack holds null, so an empty stack gives
    // null, as does one that was never set up, whose top is the slab's first word.
    unsafe {
        sequence!(base, give up by "9f";
            "mov {block}, xzr";
            "ldr {header}, [{slab}, {header_at}]",
            "ldr {block}, [{slab}, {header:w}, uxtw]",
            "cbz {block}, 9f",
            "sub {header}, {header}, #8",
            "str {header}, [{slab}, {header_at}]";
            header_at = in(reg) header_at(class),
            header = out(reg) _,
            block = out(reg) block,
        );
    }
    block
}

/// Puts a block on top. Returns false, and does nothing, if
///
/// - this thread has no cache.
/// - the stack is full.
/// - the block's mark is zero, so the block was certainly never in this cache.
/// - the block seems to be in the stack already. A stale mark of a block of another class may make
///   it seem so: `Slab::holds` is exact.
///
/// # Safety
/// `base` is set up, or [`PerCpuBase::UNSET`]. The block is free, of this class, and in no other
/// cache.
#[inline(always)]
pub(crate) unsafe fn push(base: PerCpuBase, class: SizeClass, block: *mut u8) -> bool {
    if base.area == 0 {
        return false;
    }
    // SAFETY: as for `pop`; the limit keeps the store inside the class's stack, and the block is
    // the caller's to give.
    unsafe {
        sequence!(base, give up by "{refused}";;
            "add {at}, {slab}, {header_at}",
            "ldr {header}, [{at}]",
            "lsr {slot}, {header}, #32",
            "cmp {header:w}, {slot:w}",
            "b.hs {refused}",
            // The slot that the block's mark names, or the top if that is lower.
            "ldr {slot:w}, [{slab}, {mark_at}]",
            // Zero: the block was never here.
            "cbz {slot:w}, {refused}",
            "cmp {slot:w}, {header:w}",
            "csel {slot:w}, {header:w}, {slot:w}, hi",
            "ldr {slot}, [{slab}, {slot:w}, uxtw]",
            "cmp {slot}, {block}",
            "b.eq {refused}",
            "add {slot}, {slab}, {header:w}, uxtw",
            "str {block}, [{slot}, #8]",
            "add {header}, {header}, #8",
            "str {header:w}, [{slab}, {mark_at}]",
            "stlr {header}, [{at}]";
            block = in(reg) block,
            header_at = in(reg) header_at(class),
            mark_at = in(reg) mark_at(block),
            at = out(reg) _,
            header = out(reg) _,
            slot = out(reg) _,
            refused = label { return false },
        );
    }
    true
}

/// Puts blocks on top, in their order, as many as fit into the stack. Returns how many it put
/// there.
///
/// Copies the blocks above the top, where no other sequence looks, and then moves the top once.
///
/// # Safety
/// `base` is set up. The blocks are as [`push`] requires.
#[inline(never)]
pub(crate) unsafe fn push_batch(base: PerCpuBase, class: SizeClass, blocks: &[*mut u8]) -> usize {
    let taken: usize;
    // SAFETY: as for `pop`; the free slots, of which there are as many as stores, lie in the
    // class's stack, and the blocks are the caller's to give.
    unsafe {
        sequence!(base, give up by "9f";
            "mov {taken}, xzr";
            "add {at}, {slab}, {header_at}",
            "ldr {header}, [{at}]",
            "lsr {free}, {header}, #32",
            "subs {free:w}, {free:w}, {header:w}",
            "b.ls 9f",
            "lsr {free:w}, {free:w}, #3",
            "cmp {free}, {length}",
            "csel {free}, {length}, {free}, hi",
            "add {marks}, {slab}, {marks_at}",
            "2: cmp {taken}, {free}",
            "b.eq 3f",
            "ldr {block}, [{blocks}, {taken}, lsl #3]",
            "add {header}, {header}, #8",
            "str {block}, [{slab}, {header:w}, uxtw]",
            "mul {block:w}, {block:w}, {multiplier:w}",
            "lsr {block:w}, {block:w}, #{mark_shift}",
            "str {header:w}, [{marks}, {block:w}, uxtw #2]",
            "add {taken}, {taken}, #1",
            "b 2b",
            "3: stlr {header}, [{at}]";
            header_at = in(reg) header_at(class),
            blocks = in(reg) blocks.as_ptr(),
            length = in(reg) blocks.len(),
            multiplier = in(reg) MARK_MULTIPLIER,
            mark_shift = const MARK_SHIFT,
            marks_at = in(reg) MARKS_AT,
            marks = out(reg) _,
            at = out(reg) _,
            header = out(reg) _,
            free = out(reg) _,
            block = out(reg) _,
            taken = out(reg) taken,
        );
    }
    taken
}

/// Replaces a class's header if it is `old`. Returns the header that it found; `None` if this
/// thread has no cache. It stores also if `new == old`.
///
/// # Safety
/// `base` is set up; `new` describes the same blocks as `old`, and neither is a closed header.
#[inline(never)]
pub(crate) unsafe fn replace_header(
    base: PerCpuBase,
    class: SizeClass,
    old: Header,
    new: Header,
) -> Option<Header> {
    let (found, has_cache): (u64, u32);
    // SAFETY: as for `pop`; a header is one aligned word, replaced by one store.
    unsafe {
        sequence!(base, give up by "9f";
            "mov {has_cache:w}, wzr";
            "ldr {found}, [{slab}, {header_at}]",
            "mov {has_cache:w}, #1",
            "cmp {found}, {old}",
            "b.ne 9f",
            "str {new}, [{slab}, {header_at}]";
            header_at = in(reg) header_at(class),
            old = in(reg) old.to_bits(),
            new = in(reg) new.to_bits(),
            found = out(reg) found,
            has_cache = out(reg) has_cache,
        );
    }
    (has_cache == 1).then(|| Header::from_bits(found))
}
