//! An rseq area of our own in each thread, for C libraries that register none (musl, glibc before 2.35).
//!
//! A thread registers on its first miss and unregisters as it exits: the C library unmaps its memory while the
//! kernel thread still runs, and may still write there.

use core::ffi::c_int;

use super::threads::ThreadWords;
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(miri, loom))))]
use super::{thread_pointer::thread_pointer, thread_variable::thread_variable};
use crate::platform::kernel::auxiliary;
use crate::platform::kernel::syscall::call;

/// Bytes of the first version of the kernel's area, which every kernel takes, and what the address must then be a
/// multiple of. It has room for `mm_cid`.
const FIRST: usize = 32;
/// What the address of ours is a multiple of. On arm64 glibc (2.36) opens no library whose variables want more
/// than 32; on x86-64 it does, and musl opens none at all that has such variables.
const ALIGN: usize =
    if cfg!(any(target_arch = "x86_64", target_env = "musl")) { 64 } else { FIRST };
/// Bytes of ours: with the thread's words behind it no more than one alignment.
const BYTES: usize = if ALIGN == 64 { ALIGN - size_of::<ThreadWords>() } else { FIRST };
/// getauxval(3) keys: how many bytes of the area the kernel fills, and what its address must be a multiple of if more
/// than the first version is registered. 0 before Linux 6.3.
const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;
const AT_RSEQ_ALIGN: libc::c_ulong = 28;
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
    ".balign {align}",
    concat!(symbol!(), ":"),
    ".long 0, -1, 0, 0, 0, 0, 0, 0",
    ".zero {bytes} - {first}",
    ".popsection",
    align = const ALIGN,
    bytes = const BYTES,
    first = const FIRST,
);

/// The calling thread's area, and its distance from the thread pointer, which is the same in all threads where
/// `thread_variable::is_static` says so.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(miri, loom))))]
pub(crate) fn own_area() -> (isize, *mut u32) {
    let area = thread_variable!(symbol!());
    (area.addr().wrapping_sub(thread_pointer()) as isize, area.cast())
}

/// None; and no sequences that would use it.
#[cfg(any(miri, loom, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(crate) fn own_area() -> (isize, *mut u32) {
    (0, core::ptr::null_mut())
}

/// Registers the calling thread's own area; else the error that the kernel gives.
pub(super) fn register() -> Result<(), c_int> {
    match rseq(0) {
        // Done before.
        Err(libc::EBUSY) => Ok(()),
        result => result,
    }
}

/// Afterwards the kernel does not touch the area any more, and the thread's `cpu_id` is -1.
pub(super) fn unregister() {
    // Where it was not registered, nothing happens.
    let _ = rseq(UNREGISTER);
}

fn rseq(flags: c_int) -> Result<(), c_int> {
    call_with(length(features(), auxiliary::value(AT_RSEQ_ALIGN)), flags)
}

/// rseq(2) for the own area, of which the kernel gets `bytes`, at most as many as there are.
fn call_with(bytes: usize, flags: c_int) -> Result<(), c_int> {
    let (_, area) = own_area();
    // SAFETY: the area is as long as said, and stays until the thread has unregistered it.
    unsafe { call!(libc::SYS_rseq, area, bytes, flags, SIGNATURE) }.map(|_| ())
}

/// How many bytes to register with a kernel that fills `features` and wants this alignment: all that it fills, if
/// there is room for them, or else the first version.
const fn length(features: usize, align: usize) -> usize {
    match features {
        FIRST..=BYTES if align <= ALIGN => features,
        _ => FIRST,
    }
}

/// How many bytes of a thread's area the kernel fills; 0 where it does not say.
pub(super) fn features() -> usize {
    auxiliary::value(AT_RSEQ_FEATURE_SIZE)
}

/// The error that the kernel gives to whoever asks it for nothing: EINVAL where it has rseq.
pub(super) fn refusal() -> c_int {
    // SAFETY: an area of no bytes is never registered.
    unsafe { call!(libc::SYS_rseq, 0, 0, 0, 0) }.err().unwrap_or(0)
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64"), not(any(miri, loom))))]
mod tests {
    use std::process::Command;
    use std::{env, eprintln, thread};

    use super::super::interface::RseqArea;
    use super::*;

    #[test]
    fn as_much_is_registered_as_the_kernel_fills_and_there_is_room_for() {
        // Before Linux 6.3, and since.
        assert_eq!([length(0, 0), length(28, 32), length(32, 32)], [32; 3]);
        // With extensions of time slices.
        assert_eq!(length(33, 64), if ALIGN == 64 { 33 } else { 32 });
        assert_eq!([length(BYTES, ALIGN), length(BYTES + 1, ALIGN)], [BYTES, 32]);
        assert_eq!(length(33, 128), 32);
        assert_eq!((BYTES + size_of::<ThreadWords>()).next_multiple_of(ALIGN), 64);
        assert_eq!(own_area().1.addr() % ALIGN, 0);
    }

    /// In a process of its own, in which the C library leaves rseq alone.
    #[test]
    fn a_thread_registers_as_often_as_it_likes() {
        const APART: (&str, &str) = ("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
        if refusal() != libc::EINVAL {
            return eprintln!("SKIPPED: no rseq here");
        }
        if env::var(APART.0).as_deref() != Ok(APART.1) {
            let this = thread::current();
            let mut again = Command::new(env::current_exe().unwrap());
            let again = again.args(["--exact", this.name().unwrap()]).env(APART.0, APART.1);
            return assert!(again.status().unwrap().success());
        }
        // SAFETY: the calling thread's area.
        let cpu_id =
            || unsafe { own_area().1.byte_offset(RseqArea::CPU_ID).read_volatile() } as i32;
        for _ in 0..1000 {
            assert_eq!(cpu_id(), -1);
            register().unwrap();
            assert!(cpu_id() >= 0);
            unregister();
        }

        // The kernel knows how many bytes it was given, and takes no other number.
        register().unwrap();
        for bytes in FIRST..=BYTES {
            let ours = bytes == length(features(), auxiliary::value(AT_RSEQ_ALIGN));
            let answer = if ours { libc::EBUSY } else { libc::EINVAL };
            assert_eq!(call_with(bytes, 0), Err(answer), "{bytes} bytes");
        }
        unregister();
        assert_eq!([0, UNREGISTER].map(|flags| call_with(FIRST, flags)), [Ok(()); 2]);
    }
}
