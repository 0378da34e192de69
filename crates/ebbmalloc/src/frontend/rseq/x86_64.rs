//! The restartable sequences for x86-64. `docs/rseq.md` explains them, and lists what to run after
//! a change.
//!
//! Each sequence names itself to the kernel (`rseq_cs` in the thread's area), finds the virtual
//! CPU's slab, works, and commits by one store, the last instruction. After preemption, migration
//! or a signal before that store, the kernel resumes the thread at the abort handler, which starts
//! the sequence again. Leaving a sequence by a jump needs nothing: the kernel sees that the address
//! is outside of it.
//!
//! A commit always stores the whole header. A drainer (`engine/caches/drain.rs`) replaces a header
//! by a closed one. If the closed header is still there later, no sequence has committed meanwhile.

use core::arch::asm;

use super::PerCpuBase;
use crate::frontend::slab::{
    HEADERS_AT, Header, MARK_MULTIPLIER, MARK_SHIFT, MARKS_AT, SLAB_SHIFT, mark_of,
};
use crate::platform::os::RseqArea;
use crate::size_class::SizeClass;

/// Emits a restartable sequence. The body runs with `rcx` at the virtual CPU's slab and ends with
/// its committing store. It gives up by a jump, to `9f` behind its end or to a label of the
/// caller's. Instructions that each try needs before it begins come first. Clobbers `rcx` and
/// flags.
///
/// The most used values are in the first eight registers where it matters: each use of another
/// register mostly takes a byte more, and `free` just fits into three cache lines (decisions/0002).
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
            // The abort handler, behind the signature that the kernel requires (glibc's choice).
            ".pushsection .text.ebb_rseq_abort, \"ax\"",
            ".byte 0x0f, 0xb9, 0x3d",
            ".long 0x53053053",
            "55: jmp 66f",
            ".popsection",
            "66:",
            $($prepare,)*
            // The kernel does not restart a thread that is not registered. Its `cpu_id` is below 0,
            // but its `mm_cid` is 0.
            "cmp dword ptr fs:[r8 + {cpu_id}], 0",
            concat!("jl ", $leave),
            "lea rcx, [rip + 77b]",
            "mov qword ptr fs:[r8 + {rseq_cs}], rcx",
            "33:",
            // Numbers that have a cache are below the count, and so are their low 16 bits. Those of
            // -1 and -2 are not.
            "mov ecx, dword ptr fs:[r9]",
            "cmp cx, r10w",
            concat!("jae ", $leave),
            "shl rcx, {shift}",
            "add rcx, r10",
            // Slabs begin at multiples of their size, so the low 16 bits are those of the count.
            "xor cx, r10w",
            $($body,)+
            "44:",
            "9:",
            cpu_id = const RseqArea::CPU_ID,
            rseq_cs = const RseqArea::RSEQ_CS,
            in("r9") $base.id_at,
            in("r8") $base.area,
            in("r10") $base.slabs_and_count,
            shift = const SLAB_SHIFT,
            out("rcx") _,
            $($operands)*
            options(nostack),
        )
    };
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
        sequence!(base, give up by "8f";;
            // There is no cache: rare, so out of line.
            ".pushsection .text.ebb_rseq_abort, \"ax\"",
            "8: xor {block:e}, {block:e}",
            "jmp 9f",
            ".popsection",
            // Loads the whole header, since `push` stores it whole. After a narrower store this
            // load would stall.
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
    // SAFETY: as for `pop`; the limit keeps the store inside the class's stack, and the block is
    // the caller's to give.
    unsafe {
        sequence!(base, give up by "{refused}"; "test r8, r8", "je {refused}";
            "mov {header}, qword ptr [rcx + r11*8 + {headers}]",
            // The upper half is the limit.
            "cmp {header:e}, dword ptr [rcx + r11*8 + {headers} + 4]",
            "jae {refused}",
            // The slot that the block's mark names, or the top if that is lower.
            "mov {slot:e}, dword ptr [rcx + {mark}*4 + {marks}]",
            // Zero: the block was never here.
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
            "xor {taken:e}, {taken:e}";
            "mov {header}, qword ptr [rcx + {class}*8 + {headers}]",
            "mov {top:e}, {header:e}",
            "mov {free}, {header}",
            "shr {free}, 32",
            "sub {free:e}, {top:e}",
            "jbe 9f",
            "shr {free:e}, 3",
            "cmp {free}, {length}",
            "cmova {free}, {length}",
            "2: cmp {taken}, {free}",
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
            "xor {has_cache:e}, {has_cache:e}";
            "mov {found}, qword ptr [rcx + {class}*8 + {headers}]",
            "mov {has_cache:e}, 1",
            "cmp {found}, {old}",
            "jne 9f",
            "mov qword ptr [rcx + {class}*8 + {headers}], {new}";
            class = in(reg) class.index(),
            headers = const HEADERS_AT,
            old = in(reg) old.to_bits(),
            new = in(reg) new.to_bits(),
            found = out(reg) found,
            has_cache = out(reg) has_cache,
        );
    }
    (has_cache == 1).then(|| Header::from_bits(found))
}
