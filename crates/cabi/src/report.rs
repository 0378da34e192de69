//! What `malloc.h` offers to look inside: mallinfo(3), malloc_info(3), malloc_stats(3),
//! malloc_trim(3), mallopt(3). And `ebb_stats`, which tells everything, and `ebb_idle`.

use core::ffi::{c_char, c_int, c_void};
use core::fmt::{self, Write};
use core::ptr;

use engine::Stats;
use engine::internals::ENGINE;

use crate::{export, set_errno};

/// glibc's `struct mallinfo2`; with `c_int` its `struct mallinfo`.
#[repr(C)]
pub struct MallInfo<T> {
    /// Bytes obtained from the system and not given back, without large blocks: `uordblks` and `fordblks`.
    arena: T,
    /// Free blocks.
    ordblks: T,
    /// Fastbin blocks: there are none.
    smblks: T,
    /// Large blocks.
    hblks: T,
    /// Bytes in large blocks.
    hblkhd: T,
    /// Unused.
    usmblks: T,
    /// Bytes in fastbin blocks: there are none.
    fsmblks: T,
    /// Bytes in blocks that are in use.
    uordblks: T,
    /// Bytes in free blocks and free runs, as far as they are resident.
    fordblks: T,
    /// Bytes that `malloc_trim` gives back for certain: free runs. What it finds in caches and spans comes on top.
    keepcost: T,
}

fn mall_info<T>(convert: impl Fn(u64) -> T) -> MallInfo<T> {
    let stats = ENGINE.stats_of_heap();
    let free_bytes = stats.cached_bytes + stats.pinned_bytes + stats.dirty_bytes;
    let arena = stats.live_bytes - stats.large_bytes + free_bytes;
    MallInfo {
        arena: convert(arena),
        ordblks: convert(free_blocks(&stats)),
        smblks: convert(0),
        hblks: convert(stats.large_blocks),
        hblkhd: convert(stats.large_bytes),
        usmblks: convert(0),
        fsmblks: convert(0),
        uordblks: convert(stats.live_bytes - stats.large_bytes),
        fordblks: convert(free_bytes),
        keepcost: convert(stats.dirty_bytes),
    }
}

fn free_blocks(stats: &Stats) -> u64 {
    stats.classes.iter().map(|class| class.free + class.cached).sum()
}

export! {
    /// What is in use and what is free; numbers above `INT_MAX` are cut to it.
    fn mallinfo/ebb_mallinfo() -> MallInfo<c_int> {
        mall_info(|value| value.min(c_int::MAX as u64) as c_int)
    }

    /// What is in use and what is free.
    fn mallinfo2/ebb_mallinfo2() -> MallInfo<usize> {
        mall_info(|value| value as usize)
    }

    /// Writes the statistics as XML to a C stream. `options` must be 0, else EINVAL is returned.
    fn malloc_info/ebb_malloc_info(options: c_int, stream: *mut c_void) -> c_int {
        if options != 0 || stream.is_null() {
            return libc::EINVAL;
        }
        match write_xml(&ENGINE.stats_of_heap(), &mut CStream(stream.cast())) {
            Ok(()) => 0,
            Err(fmt::Error) => {
                set_errno(libc::EIO);
                -1
            }
        }
    }

    /// Prints the statistics to standard error.
    fn malloc_stats/ebb_malloc_stats() {
        ENGINE.print_stats();
    }

    /// Gives free memory back to the kernel; 1 if there was any. `_keep` is not needed: memory at
    /// the end of a heap is nothing special here.
    fn malloc_trim/ebb_malloc_trim(_keep: usize) -> c_int {
        ENGINE.trim() as c_int
    }

    /// Accepts glibc's parameters, none of which has a counterpart here; always 1.
    fn mallopt/ebb_mallopt(_parameter: c_int, _value: c_int) -> c_int {
        1
    }
}

/// Writes where this process's resident memory is, as text, to a C stream: 0, or EINVAL for none, or -1
/// with `errno` if it cannot be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebb_why(stream: *mut c_void) -> c_int {
    if stream.is_null() {
        return libc::EINVAL;
    }
    match ENGINE.why(&mut CStream(stream.cast())) {
        Ok(()) => 0,
        Err(fmt::Error) => {
            set_errno(libc::EIO);
            -1
        }
    }
}

/// For programs without threads, when they have nothing else to do: gives some memory back that
/// nobody has needed of late. 1 if it is worth calling again after a fifth of a second.
#[unsafe(no_mangle)]
pub extern "C" fn ebb_idle() -> c_int {
    ENGINE.idle() as c_int
}

/// Formats of [`ebb_stats`], as in ebbmalloc.h.
const TEXT: c_int = 1;
const JSON: c_int = 2;
const OPENMETRICS: c_int = 3;

/// Writes the statistics in the way of snprintf(3): as much as fits, with a zero byte at the end
/// where there is room for one. The length of the whole, without that byte; for an unknown
/// format 0 and EINVAL. Does not allocate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebb_stats(format: c_int, buffer: *mut c_char, bytes: usize) -> usize {
    // SAFETY: the caller's: so many bytes may be written there.
    let mut out = unsafe { Cut::new(buffer.cast(), bytes) };
    let write = match format {
        TEXT => Stats::write_text,
        JSON => Stats::write_json,
        OPENMETRICS => Stats::write_openmetrics,
        _ => {
            set_errno(libc::EINVAL);
            return 0;
        }
    };
    // Writing there cannot fail; it cuts.
    let _ = write(&ENGINE.stats(), &mut out);
    out.length
}

/// A buffer that takes what fits, and counts the rest.
struct Cut {
    start: *mut u8,
    /// With the zero byte at the end. Nothing is written behind the text: as with snprintf(3),
    /// there may be less memory than said.
    room: usize,
    length: usize,
}

impl Cut {
    /// # Safety
    /// As much of the text as fits into so many bytes may be written there; for 0, the address may
    /// be any.
    unsafe fn new(start: *mut u8, room: usize) -> Self {
        let cut = Self { start, room, length: 0 };
        if room > 0 {
            // SAFETY: the caller's.
            unsafe { start.write(0) };
        }
        cut
    }
}

impl Write for Cut {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let left = self.room.saturating_sub(self.length).saturating_sub(1);
        let fitting = text.len().min(left);
        if fitting > 0 {
            // SAFETY: the contract of `new`: this much, and the zero byte, is within the room.
            unsafe {
                let end = self.start.add(self.length);
                ptr::copy_nonoverlapping(text.as_ptr(), end, fitting);
                end.add(fitting).write(0);
            }
        }
        self.length += text.len();
        Ok(())
    }
}

/// The shape that glibc's has: sizes by class, then totals.
fn write_xml(stats: &Stats, out: &mut impl Write) -> fmt::Result {
    writeln!(out, "<malloc version=\"ebbmalloc {}\">", engine::VERSION)?;
    writeln!(out, "<heap nr=\"0\" mode=\"{}\">\n<sizes>", stats.choice.mode)?;
    for class in stats.classes.iter().filter(|class| class.spans > 0) {
        let size = class.block_bytes;
        let free = class.free + class.cached;
        let bytes = free * size - class.hole_bytes;
        writeln!(
            out,
            "<size from=\"{size}\" to=\"{size}\" total=\"{bytes}\" count=\"{free}\" live=\"{}\" spans=\"{}\"/>",
            class.live, class.spans
        )?;
    }
    let free = free_blocks(stats);
    let bytes = stats.cached_bytes + stats.pinned_bytes;
    writeln!(out, "</sizes>\n<total type=\"rest\" count=\"{free}\" size=\"{bytes}\"/>")?;
    writeln!(
        out,
        "<total type=\"mmap\" count=\"{}\" size=\"{}\"/>",
        stats.large_blocks, stats.large_bytes
    )?;
    writeln!(
        out,
        "<system type=\"current\" size=\"{}\"/>",
        stats.held_bytes.saturating_sub(stats.hole_bytes)
    )?;
    for kind in ["total", "mprotect"] {
        writeln!(out, "<aspace type=\"{kind}\" size=\"{}\"/>", stats.committed_bytes)?;
    }
    writeln!(out, "</heap>\n</malloc>")
}

/// A C stream that somebody else opened.
struct CStream(*mut libc::FILE);

impl Write for CStream {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: the caller of `malloc_info` vouches for the stream.
        let written = unsafe { libc::fwrite(text.as_ptr().cast(), 1, text.len(), self.0) };
        if written == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}
