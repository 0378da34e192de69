//! Reads the stack of calls of the calling thread by unwinding tables, without a lock.
//!
//! It works in any thread, in signal handlers, while libraries are loaded, in destructors of
//! threads, and in fully static programs. The unwinder of a program does not: it may take locks
//! that the program holds, and allocate.
//!
//! - A frame is left as the table of its object says (`.eh_frame`), or by frame pointers where
//!   there is no table, as in code that a compiler made at run time.
//! - Most frames need one row of the table that fits in a number. These are cached by address.
//! - Nothing faults on a stack or a table that makes no sense: the kernel looks at each page of a
//!   stack before its first use, and tables are read within their object.
//!
//! Stacks end early where code has neither tables nor frame pointers: in musl's own functions, and
//! in programs that GCC links with `-static`, unless with `-Wl,--eh-frame-hdr`.
//!
//! After `dlclose`, another object may be loaded at the same addresses. With glibc 2.35 and later,
//! its rows are told from those of the old one by the size and contents of its search table. With
//! an older glibc, the stack may be read wrong there.

#![cfg_attr(
    any(miri, loom, not(any(target_arch = "x86_64", target_arch = "aarch64"))),
    allow(dead_code, reason = "stacks are not read there; tests and models use a part")
)]

// Lowest first: each uses only modules above it in this list.
pub(crate) mod sequence_lock;
#[cfg(not(loom))]
mod cursor;
#[cfg(not(loom))]
mod known_pages;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
mod registers;
#[cfg(not(loom))]
mod expression;
#[cfg(not(loom))]
mod table;
#[cfg(not(loom))]
mod row;
#[cfg(not(loom))]
mod cache;
#[cfg(not(loom))]
mod object;
#[cfg(not(loom))]
mod walk;
#[cfg(all(test, not(loom)))]
mod tests;

/// Writes the stack of calls to `out`, innermost first, from this function's caller on: the
/// addresses of the calls' last bytes. Where a signal interrupted a function, that of the
/// instruction. Returns their number.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(miri, loom))))]
#[inline(never)]
pub(crate) fn calls(out: &mut [usize]) -> usize {
    calls_from(registers::current!(), object::Source::of_process(), out)
}

/// Writes no calls: registers of this processor are not known.
#[cfg(any(miri, loom, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(crate) fn calls(_: &mut [usize]) -> usize {
    0
}

/// Writes the stack of calls from the caller of this frame on. Walks it again if short rows did not
/// tell enough.
#[cfg(not(loom))]
fn calls_from(
    frame: (registers::Registers, usize),
    source: object::Source,
    out: &mut [usize],
) -> usize {
    let mut count = 0;
    for is_short in [true, false] {
        let mut walk = walk::Walk::new(frame, source, is_short);
        count = 0;
        let stop = loop {
            let Some(call) = out.get_mut(count) else { break walk::Stop::Ended };
            match walk.leave() {
                Ok(()) => *call = walk.code(),
                Err(stop) => break stop,
            }
            count += 1;
        };
        walk.end();
        if stop == walk::Stop::Ended {
            break;
        }
    }
    count
}
