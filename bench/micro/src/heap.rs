//! Calls the C functions under test: plain for measuring, and checked for testing the same loops.
//!
//! The calls go through the dynamic symbol, so `LD_PRELOAD` selects the allocator.

use std::arch::asm;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};

/// Minimum size of a block in bytes: the checked heap keeps its header in it.
pub const MIN_SIZE: usize = 16;
const PAGE: usize = 4096;

/// The functions that the rows call. Every block is at least [`MIN_SIZE`] bytes. `alloc` and `grow`
/// write its first word, as a program would.
pub trait Heap: 'static {
    fn alloc(size: usize) -> *mut u8;
    /// Returns a zeroed block.
    fn zeroed(size: usize) -> *mut u8;
    /// # Safety
    /// `block` is live and of this heap.
    unsafe fn grow(block: *mut u8, size: usize) -> *mut u8;
    /// # Safety
    /// `block` is live and of this heap.
    unsafe fn free(block: *mut u8);

    /// Like `alloc`, and writes to each page, so that the block is resident as in real use.
    fn alloc_touched(size: usize) -> *mut u8 {
        let block = Self::alloc(size);
        for offset in (PAGE..size).step_by(PAGE) {
            // SAFETY: inside the block; the checked heap has the same value in this byte.
            unsafe { block.add(offset).write_volatile(FILL) };
        }
        block
    }
}

/// Hides a pointer's origin from the compiler, which knows malloc and free and would drop the pair.
/// Unlike with `black_box`, the pointer stays in its register.
#[inline(always)]
fn opaque(mut block: *mut u8) -> *mut u8 {
    // SAFETY: the assembly has no instruction.
    unsafe { asm!("/* {0} */", inout(reg) block, options(nostack, preserves_flags)) };
    block
}

pub struct Plain;

impl Heap for Plain {
    #[inline(always)]
    fn alloc(size: usize) -> *mut u8 {
        // SAFETY: a null result faults on the write, which the driver reports.
        unsafe {
            let block = opaque(libc::malloc(size).cast());
            block.cast::<usize>().write(size);
            block
        }
    }

    #[inline(always)]
    fn zeroed(size: usize) -> *mut u8 {
        // SAFETY: a null result faults on the write, which the driver reports.
        unsafe {
            let block = opaque(libc::calloc(1, size).cast());
            block.cast::<usize>().write(size);
            block
        }
    }

    #[inline(always)]
    unsafe fn grow(block: *mut u8, size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees a live block. A null result faults on the write, which the
        // driver reports. The write to the last byte makes the new part resident.
        unsafe {
            let block = opaque(libc::realloc(block.cast(), size).cast());
            block.add(size - 1).write(FILL);
            block
        }
    }

    #[inline(always)]
    unsafe fn free(block: *mut u8) {
        // SAFETY: the caller guarantees a live block of this heap.
        unsafe { libc::free(block.cast()) }
    }
}

/// Fills every block, and verifies all of it before it is freed. It panics if an allocator returns
/// overlapping, short, misaligned or unzeroed memory, or loses bytes in realloc.
pub struct Checked;

/// Checked blocks are filled with this behind their header.
const FILL: u8 = 0xe5;
/// Blocks of the checked heap that are not freed yet.
static LIVE: AtomicI64 = AtomicI64::new(0);
/// Makes each header unique, so that one block at two places is noticed.
static SERIAL: AtomicU32 = AtomicU32::new(0);

/// Returns the live blocks of the checked heap: 0 at the end of a row.
pub fn live_blocks() -> i64 {
    LIVE.load(Relaxed)
}

#[repr(C)]
struct Header {
    size: u32,
    serial: u32,
    /// `size` and `serial` mixed: an overwritten header is unlikely to match.
    seal: u64,
}

impl Header {
    fn new(size: usize, serial: u32) -> Header {
        let size = u32::try_from(size).expect("rows use blocks below 4 GiB");
        let seal = (u64::from(size) << 32 | u64::from(serial)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Header { size, serial, seal }
    }
}

impl Checked {
    unsafe fn seal(block: *mut u8, size: usize) {
        const { assert!(size_of::<Header>() <= MIN_SIZE) };
        assert!(!block.is_null(), "no memory for {size} bytes");
        assert!(block.addr().is_multiple_of(16), "{block:p} is not aligned to 16 bytes");
        // SAFETY: `size` bytes at `block` belong to the caller.
        unsafe {
            block.write_bytes(FILL, size);
            block.cast::<Header>().write(Header::new(size, SERIAL.fetch_add(1, Relaxed)));
        }
    }

    /// Verifies header and contents. Returns the block's size.
    unsafe fn verify(block: *mut u8, place: &str) -> usize {
        // SAFETY: the caller's block has a header and, if that is intact, `size` bytes.
        unsafe {
            let header = block.cast::<Header>().read();
            let size = header.size as usize;
            let seal = Header::new(size, header.serial).seal;
            assert!(seal == header.seal, "{block:p}: overwritten at its start, found {place}");
            let rest = std::slice::from_raw_parts(block, size)[size_of::<Header>()..].iter();
            assert!(
                rest.copied().all(|byte| byte == FILL),
                "{block:p}, {size} bytes: overwritten inside, found {place}"
            );
            size
        }
    }
}

impl Heap for Checked {
    fn alloc(size: usize) -> *mut u8 {
        LIVE.fetch_add(1, Relaxed);
        // SAFETY: the block is `size` bytes or null, which `seal` reports.
        unsafe {
            let block = libc::malloc(size).cast();
            Self::seal(block, size);
            block
        }
    }

    fn zeroed(size: usize) -> *mut u8 {
        LIVE.fetch_add(1, Relaxed);
        // SAFETY: the block is `size` bytes or null, which `seal` reports.
        unsafe {
            let block: *mut u8 = libc::calloc(1, size).cast();
            if !block.is_null() {
                let bytes = std::slice::from_raw_parts(block, size);
                assert!(bytes.iter().all(|&byte| byte == 0), "calloc({size}) is not zeroed");
            }
            Self::seal(block, size);
            block
        }
    }

    unsafe fn grow(block: *mut u8, size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees a live block; realloc keeps header and contents up to the
        // old size.
        unsafe {
            Self::verify(block, "before realloc");
            let block: *mut u8 = libc::realloc(block.cast(), size).cast();
            assert!(!block.is_null(), "no memory for {size} bytes");
            Self::verify(block, "after realloc");
            Self::seal(block, size);
            block
        }
    }

    unsafe fn free(block: *mut u8) {
        LIVE.fetch_sub(1, Relaxed);
        // SAFETY: the caller guarantees a live block of this heap.
        unsafe {
            Self::verify(block, "by free");
            libc::free(block.cast());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sound_blocks_pass() {
        // SAFETY: live blocks, each freed once.
        unsafe {
            let block = Checked::grow(Checked::alloc(40), 4000);
            let other = Checked::zeroed(64);
            Checked::free(block);
            Checked::free(other);
            Checked::free(Checked::alloc_touched(3 * PAGE));
        }
    }

    /// Writes into a block as the owner of an overlapping one would.
    fn overwrite(offset: usize) {
        let block = Checked::alloc(64);
        // SAFETY: inside the block.
        unsafe {
            *block.add(offset) ^= 1;
            Checked::free(block);
        }
    }

    #[test]
    #[should_panic = "overwritten at its start, found by free"]
    fn an_overwritten_header_is_found() {
        overwrite(4);
    }

    #[test]
    #[should_panic = "overwritten inside, found by free"]
    fn an_overwritten_last_byte_is_found() {
        overwrite(63);
    }
}
