//! An rseq area of our own in each thread, for C libraries that register none (musl, glibc before 2.35).
//!
//! Of the kernel's versions of the area, the first serves: 32 bytes, which every kernel takes and which have
//! room for `mm_cid`. A thread registers on its first miss and unregisters as it exits: the C library unmaps its
//! memory while the kernel thread still runs, and may still write there.

use core::ffi::c_int;

use super::linux::keeping_errno;

/// Bytes of the area, and what its address must be a multiple of.
const BYTES: usize = 32;
/// rseq(2).
const UNREGISTER: c_int = 1;
/// What stands before the abort handlers (`rseq/`): glibc's choice for each architecture, and the kernel's
/// default.
const SIGNATURE: u32 = if cfg!(target_arch = "x86_64") { 0x5305_3053 } else { 0xd428_bc00 };

#[cfg(not(any(miri, loom)))]
macro_rules! symbol {
    () => {
        concat!("__ebbmalloc_rseq_", env!("CARGO_PKG_VERSION"))
    };
}

// A variable of each thread. Its `cpu_id` is -1: not registered.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(miri, loom))))]
core::arch::global_asm!(
    ".pushsection .tdata.ebbmalloc, \"awT\", @progbits",
    concat!(".globl ", symbol!()),
    concat!(".hidden ", symbol!()),
    concat!(".type ", symbol!(), ", @object"),
    concat!(".size ", symbol!(), ", {bytes}"),
    ".balign {bytes}",
    concat!(symbol!(), ":"),
    ".long 0, -1",
    ".zero {bytes} - 8",
    ".popsection",
    bytes = const BYTES,
);

/// The area's distance from the thread pointer, the same in all threads; and where it is in this one.
#[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
pub(crate) fn own_area() -> (isize, *mut u32) {
    let (offset, thread): (isize, *mut u8);
    // SAFETY: the word that the thread pointer points to is its own address; the distance is in
    // the global offset table.
    unsafe {
        core::arch::asm!(
            concat!("mov {offset}, qword ptr [rip + ", symbol!(), "@GOTTPOFF]"),
            "mov {thread}, qword ptr fs:[0]",
            offset = out(reg) offset,
            thread = out(reg) thread,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    (offset, thread.wrapping_offset(offset).cast())
}

/// As above.
#[cfg(all(target_arch = "aarch64", not(any(miri, loom))))]
pub(crate) fn own_area() -> (isize, *mut u32) {
    let (offset, thread): (isize, *mut u8);
    // SAFETY: as above; here a register holds the thread pointer.
    unsafe {
        core::arch::asm!(
            concat!("adrp {offset}, :gottprel:", symbol!()),
            concat!("ldr {offset}, [{offset}, :gottprel_lo12:", symbol!(), "]"),
            "mrs {thread}, tpidr_el0",
            offset = out(reg) offset,
            thread = out(reg) thread,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    (offset, thread.wrapping_offset(offset).cast())
}

/// None; and no sequences that would use it.
#[cfg(any(miri, loom, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(crate) fn own_area() -> (isize, *mut u32) {
    (0, core::ptr::null_mut())
}

/// Registers the calling thread's own area; else the error that the kernel gives.
pub(super) fn register() -> Result<(), c_int> {
    match call(0) {
        // Done before.
        Err(libc::EBUSY) => Ok(()),
        result => result,
    }
}

/// Afterwards the kernel does not touch the area any more, and the thread's `cpu_id` is -1.
pub(super) fn unregister() {
    let _ = call(UNREGISTER);
}

fn call(flags: c_int) -> Result<(), c_int> {
    let (_, area) = own_area();
    // SAFETY: the area is as long as said, and stays until the thread has unregistered it.
    keeping_errno(|| unsafe {
        match libc::syscall(libc::SYS_rseq, area, BYTES, flags, SIGNATURE) {
            0 => Ok(()),
            _ => Err(*libc::__errno_location()),
        }
    })
}

/// The error that the kernel gives to whoever asks it for nothing: EINVAL where it has rseq.
pub(super) fn refusal() -> c_int {
    // SAFETY: an area of no bytes is never registered.
    keeping_errno(|| unsafe {
        libc::syscall(libc::SYS_rseq, core::ptr::null_mut::<u8>(), 0, 0, 0);
        *libc::__errno_location()
    })
}
