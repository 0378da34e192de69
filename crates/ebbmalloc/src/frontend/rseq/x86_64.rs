//! The sequences for x86-64. `docs/rseq.md` explains one instruction by instruction.
//!
//! Common shape: name the sequence to the kernel (`rseq_cs` in the thread's area), find the
//! virtual CPU's slab, work, and commit by one store, the last instruction. Preemption, migration
//! or a signal before it makes the kernel jump to the abort handler, which starts over. Leaving
//! a sequence by a jump needs nothing: the kernel sees that the address is outside of it.
//!
//! What is committed is always the whole header: `drain.rs` puts another in its place, and tells by
//! its still being there that no sequence has ended meanwhile.

use core::arch::asm;

use super::base::PerCpuBase;
use crate::frontend::slab::{
    HEADERS_AT, Header, MARK_MULTIPLIER, MARK_SHIFT, MARKS_AT, SLAB_SHIFT, Slab, mark_of,
};
use crate::platform::os::RseqArea;
use crate::size_class::SizeClass;

/// A restartable sequence. The body runs with `rcx` at the virtual CPU's slab and ends with
/// its committing store; it gives up by a jump, to `9f` behind its end or to a label of the
/// caller's. What must be set before each try stands before it. Clobbers `rcx` and flags.
///
/// What is used most is in the first eight registers, as far as it matters: naming one of the others mostly takes a byte
/// more, and `free` just fits into three cache lines (decisions/0002).
macro_rules! sequence {
    ($place:expr, give up by $leave:literal; $($prepare:literal),* ; $($body:literal),+ ; $($operands:tt)*) => {
        asm!(
            // The descriptor: version and flags, start, length, abort handler.
            ".pushsection __rseq_cs, \"aw\"",
            ".balign 32",
            "77: .long 0, 0",
            ".quad 33f, 44f - 33f, 55f",
            ".popsection",
            // The abort handler, after the signature that the kernel insists on (glibc's choice).
            ".pushsection .text.ebb_rseq_abort, \"ax\"",
            ".byte 0x0f, 0xb9, 0x3d",
            ".long 0x53053053",
            "55: jmp 66f",
            ".popsection",
            "66:",
            $($prepare,)*
            // A thread that is not registered has a CPU's number below 0: nobody would restart it. Its `mm_cid` is 0.
            "cmp dword ptr fs:[r8 + {cpu_id}], 0",
            concat!("jl ", $leave),
            "lea rcx, [rip + 77b]",
            "mov qword ptr fs:[r8 + {rseq_cs}], rcx",
            "33:",
            // Numbers that have a cache are below the count, and so are their low 16 bits; those of -1 and -2 are not.
            "mov ecx, dword ptr fs:[r9]",
            "cmp cx, r10w",
            concat!("jae ", $leave),
            "shl rcx, {shift}",
            "add rcx, r10",
            // Slabs begin at multiples of their size, so these bits are those of the count.
            "xor cx, r10w",
            $($body,)+
            "44:",
            "9:",
            cpu_id = const RseqArea::CPU_ID,
            rseq_cs = const RseqArea::RSEQ_CS,
            in("r9") $place.id_at,
            in("r8") $place.area,
            in("r10") $place.slabs_and_count,
            shift = const SLAB_SHIFT,
            out("rcx") _,
            $($operands)*
            options(nostack),
        )
    };
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
        sequence!(place, give up by "8f";;
            // Rare, and so out of the way: there is no cache.
            ".pushsection .text.ebb_rseq_abort, \"ax\"",
            "8: xor {block:e}, {block:e}",
            "jmp 9f",
            ".popsection",
            // The whole header, as `push` stores it: a narrower store would stall its load.
            "mov {header}, qword ptr [rcx + {class}*8 + {headers}]",
            "mov {top:e}, {header:e}",
            "mov {block}, qword ptr [rcx + {top}]",
            "test {block}, {block}",
            "je 9f",
            "sub {header}, 8",
            "mov qword ptr [rcx + {class}*8 + {headers}], {header}";
            class = in(reg) class.index(),
            headers = const HEADERS_AT,
            header = out(reg) _,
            top = out(reg) _,
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
            "xor {found:e}, {found:e}";
            "mov {top:e}, dword ptr [rcx + {class}*8 + {headers}]",
            "mov {slot:e}, dword ptr [rcx + {mark}*4 + {marks}]",
            "cmp {slot:e}, {top:e}",
            "cmova {slot:e}, {top:e}",
            "cmp {slot:e}, {bottom:e}",
            "jbe 9f",
            "cmp qword ptr [rcx + {slot}], {block}",
            "jne 9f",
            "mov {found:e}, 1";
            block = in(reg) block,
            bottom = in(reg) bottom,
            class = in(reg) class.index(),
            headers = const HEADERS_AT,
            mark = in(reg) mark_of(block),
            marks = const MARKS_AT,
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
    // SAFETY: as for `pop`; the limit keeps the store inside the class's stack.
    unsafe {
        sequence!(place, give up by "{refused}"; "test r8, r8", "je {refused}";
            "mov {header}, qword ptr [rcx + r11*8 + {headers}]",
            // The limit, in the upper half.
            "cmp {header:e}, dword ptr [rcx + r11*8 + {headers} + 4]",
            "jae {refused}",
            // The slot that the block's mark names, or the newest if that lies above.
            "mov {slot:e}, dword ptr [rcx + {mark}*4 + {marks}]",
            // None: it was never here.
            "test {slot:e}, {slot:e}",
            "je {refused}",
            "cmp {slot:e}, {header:e}",
            "cmova {slot:e}, {header:e}",
            "cmp qword ptr [rcx + {slot}], {block}",
            "je {refused}",
            "mov {slot:e}, {header:e}",
            "mov qword ptr [rcx + {slot} + 8], {block}",
            "add {header}, 8",
            "mov dword ptr [rcx + {mark}*4 + {marks}], {header:e}",
            "mov qword ptr [rcx + r11*8 + {headers}], {header}";
            block = in(reg) block,
            in("r11") class.index(),
            headers = const HEADERS_AT,
            mark = in(reg) mark_of(block),
            marks = const MARKS_AT,
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
            "xor {taken:e}, {taken:e}";
            "mov {header}, qword ptr [rcx + {class}*8 + {headers}]",
            "mov {top:e}, {header:e}",
            "mov {room}, {header}",
            "shr {room}, 32",
            "sub {room:e}, {top:e}",
            "jbe 9f",
            "shr {room:e}, 3",
            "cmp {room}, {length}",
            "cmova {room}, {length}",
            "2: cmp {taken}, {room}",
            "je 3f",
            "mov {block}, qword ptr [{blocks} + {taken}*8]",
            "add {top:e}, 8",
            "mov qword ptr [rcx + {top}], {block}",
            "imul {block:e}, {block:e}, {multiplier}",
            "shr {block:e}, {mark_shift}",
            "mov dword ptr [rcx + {block}*4 + {marks}], {top:e}",
            "inc {taken}",
            "jmp 2b",
            "3: lea {header}, [{header} + {taken}*8]",
            "mov qword ptr [rcx + {class}*8 + {headers}], {header}";
            class = in(reg) class.index(),
            headers = const HEADERS_AT,
            blocks = in(reg) blocks.as_ptr(),
            length = in(reg) blocks.len(),
            multiplier = const MARK_MULTIPLIER as i32,
            mark_shift = const MARK_SHIFT,
            marks = const MARKS_AT,
            header = out(reg) _,
            top = out(reg) _,
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
            "xor {taken:e}, {taken:e}";
            "mov {header}, qword ptr [rcx + {class}*8 + {headers}]",
            "2: cmp {taken}, {length}",
            "je 3f",
            "cmp {header:e}, {bottom:e}",
            "jbe 3f",
            "mov {block:e}, {header:e}",
            "mov {block}, qword ptr [rcx + {block}]",
            "mov qword ptr [{blocks} + {taken}*8], {block}",
            "sub {header}, 8",
            "inc {taken}",
            "jmp 2b",
            "3: test {taken}, {taken}",
            "je 9f",
            "mov qword ptr [rcx + {class}*8 + {headers}], {header}";
            class = in(reg) class.index(),
            headers = const HEADERS_AT,
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
            "xor {known:e}, {known:e}";
            "mov {found}, qword ptr [rcx + {class}*8 + {headers}]",
            "mov {known:e}, 1",
            "cmp {found}, {old}",
            "jne 9f",
            "mov qword ptr [rcx + {class}*8 + {headers}], {new}";
            class = in(reg) class.index(),
            headers = const HEADERS_AT,
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
            "xor {found:e}, {found:e}";
            "mov {found}, rcx";
            found = out(reg) found,
        );
    }
    found
}
