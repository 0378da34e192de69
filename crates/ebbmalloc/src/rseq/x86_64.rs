//! The sequences for x86-64. `docs/rseq.md` explains one instruction by instruction.
//!
//! Common shape: name the sequence to the kernel (`rseq_cs` in the thread's area), find the
//! virtual CPU's slab, work, and commit by one store, the last instruction. Preemption, migration
//! or a signal before it makes the kernel jump to the abort handler, which starts over. Leaving
//! a sequence by a jump needs nothing: the kernel sees that the address is outside of it.

use core::arch::asm;

use super::{Place, Pushed};
use crate::cache::{Header, SLAB_SHIFT};

/// Offset and size of the area that the C library registered for each thread, if it has any.
pub(crate) fn registered_by_libc() -> Option<(isize, usize)> {
    let (offset, size): (*const isize, *const u32);
    // SAFETY: reads two addresses from the global offset table; a weak symbol that nobody
    // defines (musl, glibc before 2.35) has address 0.
    unsafe {
        asm!(
            ".weak __rseq_offset",
            ".weak __rseq_size",
            "mov {offset}, qword ptr [rip + __rseq_offset@GOTPCREL]",
            "mov {size}, qword ptr [rip + __rseq_size@GOTPCREL]",
            offset = out(reg) offset,
            size = out(reg) size,
            options(nomem, nostack, preserves_flags),
        );
        if offset.is_null() || size.is_null() {
            return None;
        }
        Some((*offset, *size as usize))
    }
}

/// A restartable sequence. The body runs with `{slab}` at the virtual CPU's slab, jumps to `9f`
/// to give up, and ends with its committing store. What must be set before each try stands
/// before the `;`. Clobbers `{slab}` and flags.
macro_rules! sequence {
    ($place:expr; $($prepare:literal),* ; $($body:literal),+ ; $($operands:tt)*) => {
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
            "lea {slab}, [rip + 77b]",
            "mov qword ptr fs:[{area} + 8], {slab}",
            "33:",
            // A thread that is not registered has a negative cpu_id, and no protection.
            "cmp dword ptr fs:[{area} + 4], 0",
            "jl 9f",
            "mov {slab:e}, dword ptr fs:[{id_at}]",
            "cmp {slab}, {count}",
            "jae 9f",
            "shl {slab}, {shift}",
            "add {slab}, {slabs}",
            $($body,)+
            "44:",
            "9:",
            area = in(reg) $place.area,
            id_at = in(reg) $place.id_at,
            slabs = in(reg) $place.slabs,
            count = in(reg) $place.count,
            shift = const SLAB_SHIFT,
            slab = out(reg) _,
            $($operands)*
            options(nostack),
        )
    };
}

/// Takes the newest block; null if there is none.
///
/// # Safety
/// `place` is set up; `header` is the offset of a class's header in a slab.
#[inline(always)]
pub(crate) unsafe fn pop(place: &Place, header: usize) -> *mut u8 {
    let block: *mut u8;
    // SAFETY: the slabs are ours; the bottom slot of each stack holds null, so an empty stack,
    // and one never set up (whose top is the slab's first word), give null.
    unsafe {
        sequence!(place;
            "xor {block:e}, {block:e}";
            "mov {top:e}, dword ptr [{slab} + {header}]",
            "mov {block}, qword ptr [{slab} + {top}]",
            "test {block}, {block}",
            "je 9f",
            "sub {top:e}, 8",
            "mov dword ptr [{slab} + {header}], {top:e}";
            header = in(reg) header,
            top = out(reg) _,
            block = out(reg) block,
        );
    }
    block
}

/// Puts a block on top.
///
/// # Safety
/// As for [`pop`]; the block is free, of this class, and in no other cache.
#[inline(always)]
pub(crate) unsafe fn push(place: &Place, header: usize, block: *mut u8) -> Pushed {
    let pushed: u32;
    // SAFETY: as for `pop`; the limit keeps the store inside the class's stack.
    unsafe {
        sequence!(place;
            "mov {pushed:e}, 1";
            "mov {top:e}, dword ptr [{slab} + {header}]",
            "cmp {top:e}, dword ptr [{slab} + {header} + 4]",
            "jae 9f",
            "mov {pushed:e}, 2",
            "cmp qword ptr [{slab} + {top}], {block}",
            "je 9f",
            "xor {pushed:e}, {pushed:e}",
            "mov qword ptr [{slab} + {top} + 8], {block}",
            "add {top:e}, 8",
            "mov dword ptr [{slab} + {header}], {top:e}";
            header = in(reg) header,
            block = in(reg) block,
            top = out(reg) _,
            pushed = out(reg) pushed,
        );
    }
    match pushed {
        0 => Pushed::Done,
        1 => Pushed::Full,
        _ => Pushed::Twice,
    }
}

/// Puts as many blocks on top as there is room for, the last one topmost; how many went.
///
/// Copies above the top, where nobody looks, and then moves the top once.
///
/// # Safety
/// As for [`push`].
#[inline(never)]
pub(crate) unsafe fn push_batch(place: &Place, header: usize, blocks: &[*mut u8]) -> usize {
    let taken: usize;
    // SAFETY: as for `push`.
    unsafe {
        sequence!(place;
            "xor {taken:e}, {taken:e}";
            "mov {top:e}, dword ptr [{slab} + {header}]",
            "mov {room:e}, dword ptr [{slab} + {header} + 4]",
            "sub {room:e}, {top:e}",
            "jbe 9f",
            "shr {room:e}, 3",
            "cmp {room}, {length}",
            "cmova {room}, {length}",
            "2: cmp {taken}, {room}",
            "je 3f",
            "mov {block}, qword ptr [{blocks} + {taken}*8]",
            "add {top:e}, 8",
            "mov qword ptr [{slab} + {top}], {block}",
            "inc {taken}",
            "jmp 2b",
            "3: mov dword ptr [{slab} + {header}], {top:e}";
            header = in(reg) header,
            blocks = in(reg) blocks.as_ptr(),
            length = in(reg) blocks.len(),
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
    place: &Place,
    header: usize,
    bottom: u32,
    blocks: &mut [*mut u8],
) -> usize {
    let taken: usize;
    // SAFETY: as for `pop`; writes to `blocks` are private until the commit and may be repeated.
    unsafe {
        sequence!(place;
            "xor {taken:e}, {taken:e}";
            "mov {top:e}, dword ptr [{slab} + {header}]",
            "2: cmp {taken}, {length}",
            "je 3f",
            "cmp {top:e}, {bottom:e}",
            "jbe 3f",
            "mov {block}, qword ptr [{slab} + {top}]",
            "mov qword ptr [{blocks} + {taken}*8], {block}",
            "sub {top:e}, 8",
            "inc {taken}",
            "jmp 2b",
            "3: test {taken}, {taken}",
            "je 9f",
            "mov dword ptr [{slab} + {header}], {top:e}";
            header = in(reg) header,
            bottom = in(reg) bottom,
            blocks = in(reg) blocks.as_mut_ptr(),
            length = in(reg) blocks.len(),
            top = out(reg) _,
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
    place: &Place,
    header: usize,
    old: Header,
    new: Header,
) -> Option<Header> {
    let (found, known): (u64, u32);
    // SAFETY: as for `pop`; a header is one aligned word, replaced by one store.
    unsafe {
        sequence!(place;
            "xor {known:e}, {known:e}";
            "mov {found}, qword ptr [{slab} + {header}]",
            "mov {known:e}, 1",
            "cmp {found}, {old}",
            "jne 9f",
            "mov qword ptr [{slab} + {header}], {new}";
            header = in(reg) header,
            old = in(reg) old.to_bits(),
            new = in(reg) new.to_bits(),
            found = out(reg) found,
            known = out(reg) known,
        );
    }
    (known == 1).then(|| Header::from_bits(found))
}
