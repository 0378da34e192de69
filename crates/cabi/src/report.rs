//! Defines the functions of `malloc.h` that report on the heap and tune it, and ebbmalloc's own:
//! `ebb_stats`, `ebb_why` and `ebb_idle`.
//!
//! See mallinfo(3), malloc_info(3), malloc_stats(3), malloc_trim(3) and mallopt(3).

use core::ffi::{c_char, c_int, c_void};
use core::fmt::{self, Write};
use core::ptr;

use engine::Stats;
use engine::internals::{Detail, ENGINE};

use crate::{export, set_errno};

/// glibc's `struct mallinfo2`; with `c_int` its `struct mallinfo`.
#[repr(C)]
pub struct MallInfo<T> {
    /// Bytes held without large blocks: the sum of `uordblks` and `fordblks`.
    arena: T,
    /// Number of free small blocks, resident or not.
    ordblks: T,
    /// Number of fastbin blocks: always 0.
    smblks: T,
    /// Number of large blocks.
    hblks: T,
    /// Bytes in large blocks.
    hblkhd: T,
    /// Unused: always 0.
    usmblks: T,
    /// Bytes in fastbin blocks: always 0.
    fsmblks: T,
    /// Bytes in small blocks in use.
    uordblks: T,
    /// Resident bytes in free blocks and free runs.
    fordblks: T,
    /// Bytes that `malloc_trim` returns for certain: those in free runs. It also empties caches and
    /// purges free pages of spans.
    keepcost: T,
}

fn mall_info<T>(convert: impl Fn(u64) -> T) -> MallInfo<T> {
    ENGINE.with_stats(Detail::Heap, |stats| {
        let free_bytes = stats.cached_bytes + stats.pinned_bytes + stats.dirty_bytes;
        let small_bytes = stats.live_bytes - stats.large_bytes;
        MallInfo {
            arena: convert(small_bytes + free_bytes),
            ordblks: convert(free_blocks(stats)),
            smblks: convert(0),
            hblks: convert(stats.large_blocks),
            hblkhd: convert(stats.large_bytes),
            usmblks: convert(0),
            fsmblks: convert(0),
            uordblks: convert(small_bytes),
            fordblks: convert(free_bytes),
            keepcost: convert(stats.dirty_bytes),
        }
    })
}

fn free_blocks(stats: &Stats) -> u64 {
    stats.classes.iter().map(|class| class.free + class.cached).sum()
}

export! {
    /// Counts memory in use and free memory. Numbers above `INT_MAX` become `INT_MAX`.
    fn mallinfo/ebb_mallinfo() -> MallInfo<c_int> {
        mall_info(|value| value.min(c_int::MAX as u64) as c_int)
    }

    /// Counts memory in use and free memory.
    fn mallinfo2/ebb_mallinfo2() -> MallInfo<usize> {
        mall_info(|value| value as usize)
    }

    /// Writes statistics as XML to a C stream. Returns 0; EINVAL if `options` is not 0 or the
    /// stream is null; or -1 and sets EIO.
    fn malloc_info/ebb_malloc_info(options: c_int, stream: *mut c_void) -> c_int {
        if options != 0 || stream.is_null() {
            return libc::EINVAL;
        }
        let written = ENGINE.with_stats(Detail::Heap, |stats| {
            write_xml(stats, &mut CStream(stream.cast()))
        });
        match written {
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

    /// Returns free memory to the kernel. Returns 1 if there was any. `_keep` has no effect: it is
    /// about memory at the end of a heap, which has no special place here.
    fn malloc_trim/ebb_malloc_trim(_keep: usize) -> c_int {
        ENGINE.trim() as c_int
    }

    /// Accepts glibc's parameters, none of which has a counterpart here. Returns 1.
    fn mallopt/ebb_mallopt(_parameter: c_int, _value: c_int) -> c_int {
        1
    }
}

/// Writes where this process's resident memory is, as text, to a C stream. Returns 0; EINVAL for a
/// null stream; or -1 and sets EIO.
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

/// Returns memory to the kernel that the program has not needed recently: for programs without
/// threads, when they are idle. Returns 1 if another call after the purge delay (200 ms) may return
/// more.
#[unsafe(no_mangle)]
pub extern "C" fn ebb_idle() -> c_int {
    ENGINE.idle() as c_int
}

/// Formats of [`ebb_stats`], as in ebbmalloc.h.
const TEXT: c_int = 1;
const JSON: c_int = 2;
const OPENMETRICS: c_int = 3;
const PROMETHEUS: c_int = 4;

/// Writes statistics as snprintf(3) writes: as much as fits, and a zero byte at the end unless
/// `bytes` is 0. Returns the whole length without that byte; for an unknown format 0, and sets
/// EINVAL. Does not allocate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebb_stats(format: c_int, buffer: *mut c_char, bytes: usize) -> usize {
    let write = match format {
        TEXT => Stats::write_text,
        JSON => Stats::write_json,
        OPENMETRICS => Stats::write_openmetrics,
        PROMETHEUS => Stats::write_prometheus,
        _ => {
            set_errno(libc::EINVAL);
            return 0;
        }
    };
    // SAFETY: the caller's buffer has room for `bytes` bytes, or for the text and its zero byte.
    unsafe { Cut::print(Detail::Whole, write, buffer, bytes) }
}

/// A buffer that keeps the text that fits, and counts the rest.
pub struct Cut {
    start: *mut u8,
    /// Bytes of the buffer, with the zero byte at the end. Nothing is written after the text: as
    /// with snprintf(3), the memory may be smaller than stated, if the text fits.
    capacity: usize,
    /// Bytes of the whole text.
    length: usize,
}

impl Cut {
    /// Writes statistics as snprintf(3) writes. Returns the whole length.
    ///
    /// # Safety
    /// As for [`Cut::new`].
    pub unsafe fn print(
        detail: Detail,
        write: fn(&Stats, &mut Cut) -> fmt::Result,
        buffer: *mut c_char,
        bytes: usize,
    ) -> usize {
        // SAFETY: the caller guarantees the same.
        let mut out = unsafe { Cut::new(buffer.cast(), bytes) };
        // Writing to a buffer never fails: it cuts.
        let _ = ENGINE.with_stats(detail, |stats| write(stats, &mut out));
        out.length
    }

    /// # Safety
    /// Memory for the part of the text that fits into `capacity` bytes, and its zero byte, is valid
    /// from `start` on. For a capacity of 0, any address will do.
    unsafe fn new(start: *mut u8, capacity: usize) -> Self {
        let cut = Self { start, capacity, length: 0 };
        if capacity > 0 {
            // SAFETY: the caller guarantees memory for at least the zero byte.
            unsafe { start.write(0) };
        }
        cut
    }
}

impl Write for Cut {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let left = self.capacity.saturating_sub(self.length).saturating_sub(1);
        let fitting = text.len().min(left);
        if fitting > 0 {
            // SAFETY: by the contract of `new`, the memory holds this text and the zero byte: both
            // lie within the capacity.
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

/// Writes XML in the shape of glibc's: sizes by class, then totals.
fn write_xml(stats: &Stats, out: &mut impl Write) -> fmt::Result {
    writeln!(out, "<malloc version=\"ebbmalloc {}\">", engine::VERSION)?;
    writeln!(out, "<heap nr=\"0\" mode=\"{}\">\n<sizes>", stats.choice.mode)?;
    for class in stats.classes.iter().filter(|class| class.spans > 0) {
        let size = class.block_bytes;
        let free = class.free + class.cached;
        let bytes = free * size - class.hole_bytes;
        writeln!(
            out,
            "<size from=\"{size}\" to=\"{size}\" total=\"{bytes}\" count=\"{free}\" \
             live=\"{}\" spans=\"{}\"/>",
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

/// A C stream that the program opened.
struct CStream(*mut libc::FILE);

impl Write for CStream {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: the caller of `malloc_info` or `ebb_why` guarantees that the stream is open.
        let written = unsafe { libc::fwrite(text.as_ptr().cast(), 1, text.len(), self.0) };
        if written == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}
