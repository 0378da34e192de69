//! The sequences for AArch64: the shape and the contract of those for x86-64 (`x86_64.rs`,
//! `docs/rseq.md`), where the processor keeps less order.
//!
//! A push commits by a store-release: whoever sees the new header sees the block below it. That is for the
//! child of a fork, to which no barrier belongs. All other readers are kept in order by the kernel:
//! `docs/rseq.md` says how.

use core::arch::asm;

use super::base::PerCpuBase;
use crate::frontend::slab::{
    HEADERS_AT, Header, MARK_MULTIPLIER, MARK_SHIFT, MARKS_AT, SLAB_SHIFT, Slab, mark_at,
};
use crate::platform::os::RseqArea;
use crate::size_class::SizeClass;

/// A restartable sequence. The body runs with `{slab}` at the virtual CPU's slab and ends with
/// its committing store; it gives up by a jump, to `9f` behind its end or to a label of the
/// caller's. What must be set before each try stands before it. Clobbers `{slab}` and flags.
macro_rules! sequence {
    ($place:expr, give up by $leave:literal; $($prepare:literal),* ; $($body:literal),+ ; $($operands:tt)*) => {
        asm!(
            // The descriptor: version and flags, start, length, abort handler.
            ".pushsection __rseq_cs, \"aw\"",
            ".balign 32",
            "77: .long 0, 0",
            ".quad 33f, 44f - 33f, 55f",
            ".popsection",
            // The abort handler, after the signature that the kernel insists on (glibc's choice, an
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
            // A thread that is not registered has a CPU's number below 0.
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
            id_at = in(reg) $place.id_at,
            area = inout(reg) $place.area => _,
            slabs = in(reg) $place.slabs_and_count & (usize::MAX << SLAB_SHIFT),
            count = in(reg) $place.slabs_and_count & 0xffff,
            shift = const SLAB_SHIFT,
            thread = out(reg) _,
            slab = out(reg) _,
            // In a program of more than 128 MiB the linker may put a stub between handler and sequence.
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

/// Takes the newest block; null if there is none.
///
/// # Safety
/// `place` is set up.
#[inline(always)]
pub(crate) unsafe fn pop(place: PerCpuBase, class: SizeClass) -> *mut u8 {
    let block: *mut u8;
    // SAFETY: the slabs are ours; the bottom slot of each stack holds null, so an empty stack,
    // and one never set up (whose top is the slab's first word), give null.
    unsafe {
        sequence!(place, give up by "9f";
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

/// Whether a block is in the stack, if it is the newest, or if its mark is its own still. `bottom` is the offset of the
/// class's bottom slot.
///
/// # Safety
/// As for [`pop`].
#[inline(always)]
pub(crate) unsafe fn holds(
    place: PerCpuBase,
    class: SizeClass,
    bottom: u32,
    block: *mut u8,
) -> bool {
    let found: u32;
    // SAFETY: as for `pop`; nothing is stored but registers, and a mark up to the top names a slot.
    unsafe {
        sequence!(place, give up by "9f";
            "mov {found:w}, wzr";
            "ldr {top:w}, [{slab}, {header_at}]",
            "ldr {slot:w}, [{slab}, {mark_at}]",
            "cmp {slot:w}, {top:w}",
            "csel {slot:w}, {top:w}, {slot:w}, hi",
            "cmp {slot:w}, {bottom:w}",
            "b.ls 9f",
            "ldr {slot}, [{slab}, {slot:w}, uxtw]",
            "cmp {slot}, {block}",
            "b.ne 9f",
            "mov {found:w}, #1";
            block = in(reg) block,
            bottom = in(reg) bottom,
            header_at = in(reg) header_at(class),
            mark_at = in(reg) mark_at(block),
            top = out(reg) _,
            slot = out(reg) _,
            found = out(reg) found,
        );
    }
    found == 1
}

/// Puts a block on top. False, and nothing happens, if the stack is full, if the block is there already or was certainly
/// never in this cache, as far as marks tell, or if this thread has no cache. Where blocks of another class lay there
/// once, a mark may seem to be the block's and not be: [`holds`] is exact.
///
/// # Safety
/// `place` is set up, or [`PerCpuBase::UNSET`]; the block is free, of this class, and in no other cache.
#[inline(always)]
pub(crate) unsafe fn push(place: PerCpuBase, class: SizeClass, block: *mut u8) -> bool {
    if place.area == 0 {
        return false;
    }
    // SAFETY: as for `pop`; the limit keeps the store inside the class's stack.
    unsafe {
        sequence!(place, give up by "{refused}";;
            "add {at}, {slab}, {header_at}",
            "ldr {header}, [{at}]",
            "lsr {slot}, {header}, #32",
            "cmp {header:w}, {slot:w}",
            "b.hs {refused}",
            // The slot that the block's mark names, or the newest if that lies above.
            "ldr {slot:w}, [{slab}, {mark_at}]",
            // None: it was never here.
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

/// Puts as many blocks on top as there is room for, the last one topmost; how many went.
///
/// Copies above the top, where nobody looks, and then moves the top once.
///
/// # Safety
/// As for [`push`].
#[inline(never)]
pub(crate) unsafe fn push_batch(place: PerCpuBase, class: SizeClass, blocks: &[*mut u8]) -> usize {
    let taken: usize;
    // SAFETY: as for `push`.
    unsafe {
        sequence!(place, give up by "9f";
            "mov {taken}, xzr";
            "add {at}, {slab}, {header_at}",
            "ldr {header}, [{at}]",
            "lsr {room}, {header}, #32",
            "subs {room:w}, {room:w}, {header:w}",
            "b.ls 9f",
            "lsr {room:w}, {room:w}, #3",
            "cmp {room}, {length}",
            "csel {room}, {length}, {room}, hi",
            "add {marks}, {slab}, {marks_at}",
            "2: cmp {taken}, {room}",
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
            room = out(reg) _,
            block = out(reg) _,
            taken = out(reg) taken,
        );
    }
    taken
}

/// Takes as many of the newest blocks as `blocks` has room for, the newest first; how many came.
/// `bottom` is the offset of the class's bottom slot.
///
/// # Safety
/// As for [`pop`].
#[inline(never)]
pub(crate) unsafe fn pop_batch(
    place: PerCpuBase,
    class: SizeClass,
    bottom: u32,
    blocks: &mut [*mut u8],
) -> usize {
    let taken: usize;
    // SAFETY: as for `pop`; writes to `blocks` are private until the commit and may be repeated.
    unsafe {
        sequence!(place, give up by "9f";
            "mov {taken}, xzr";
            "ldr {header}, [{slab}, {header_at}]",
            "2: cmp {taken}, {length}",
            "b.eq 3f",
            "cmp {header:w}, {bottom:w}",
            "b.ls 3f",
            "ldr {block}, [{slab}, {header:w}, uxtw]",
            "str {block}, [{blocks}, {taken}, lsl #3]",
            "sub {header}, {header}, #8",
            "add {taken}, {taken}, #1",
            "b 2b",
            "3: cbz {taken}, 9f",
            "str {header}, [{slab}, {header_at}]";
            header_at = in(reg) header_at(class),
            bottom = in(reg) bottom,
            blocks = in(reg) blocks.as_mut_ptr(),
            length = in(reg) blocks.len(),
            header = out(reg) _,
            block = out(reg) _,
            taken = out(reg) taken,
        );
    }
    taken
}

/// Replaces a class's header if it is `old`. Returns what it was; `None` if this thread has no
/// cache. With `old == new` it only looks.
///
/// # Safety
/// As for [`pop`]; `new` describes the same stack contents as `old`.
#[inline(never)]
pub(crate) unsafe fn replace_header(
    place: PerCpuBase,
    class: SizeClass,
    old: Header,
    new: Header,
) -> Option<Header> {
    let (found, known): (u64, u32);
    // SAFETY: as for `pop`; a header is one aligned word, replaced by one store.
    unsafe {
        sequence!(place, give up by "9f";
            "mov {known:w}, wzr";
            "ldr {found}, [{slab}, {header_at}]",
            "mov {known:w}, #1",
            "cmp {found}, {old}",
            "b.ne 9f",
            "str {new}, [{slab}, {header_at}]";
            header_at = in(reg) header_at(class),
            old = in(reg) old.to_bits(),
            new = in(reg) new.to_bits(),
            found = out(reg) found,
            known = out(reg) known,
        );
    }
    (known == 1).then(|| Header::from_bits(found))
}

/// The slab of the virtual CPU that this thread ran on a moment ago; null if it has no cache.
///
/// # Safety
/// As for [`pop`].
pub(crate) unsafe fn slab(place: PerCpuBase) -> *mut Slab {
    let found: *mut Slab;
    // SAFETY: as for `pop`; nothing is stored but a register.
    unsafe {
        sequence!(place, give up by "9f";
            "mov {found}, xzr";
            "mov {found}, {slab}";
            found = out(reg) found,
        );
    }
    found
}
