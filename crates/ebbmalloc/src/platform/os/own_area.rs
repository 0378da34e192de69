//! Gives each thread an rseq area of the engine's own, for C libraries that register none: musl,
//! and glibc before 2.35.
//!
//! A thread registers on its first miss of a cache. It unregisters as it exits: the C library
//! unmaps the thread's memory while the kernel may still write to the area.

use core::ffi::c_int;

use super::thread_words::ThreadWords;
use crate::platform::arch::{thread_pointer, thread_variable};
use crate::platform::kernel::auxiliary;
use crate::platform::kernel::syscall::call;

/// Bytes and alignment of the first version of the kernel's area. Every kernel takes it, and it
/// includes `mm_cid`.
const FIRST_BYTES: usize = 32;
/// Alignment of the engine's area. On arm64, glibc (2.36) opens no library whose thread variables
/// need more than 32; on x86-64 it does. musl opens no library with such variables at all.
const ALIGN: usize =
    if cfg!(any(target_arch = "x86_64", target_env = "musl")) { 64 } else { FIRST_BYTES };
/// Bytes of the engine's area. With the thread's words behind it, it takes one alignment at most.
const BYTES: usize = if ALIGN == 64 { ALIGN - size_of::<ThreadWords>() } else { FIRST_BYTES };
/// The getauxval(3) key for the bytes of an area that the kernel fills. 0 before Linux 6.3.
const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;
/// The getauxval(3) key for the alignment of an area larger than the first version. 0 before Linux
/// 6.3.
const AT_RSEQ_ALIGN: libc::c_ulong = 28;
/// The flag of rseq(2) to unregister.
const UNREGISTER: c_int = 1;
/// The word before each abort handler (`frontend/rseq/`): glibc's choice for each architecture,
/// and the kernel's default.
const SIGNATURE: u32 = if cfg!(target_arch = "x86_64") { 0x5305_3053 } else { 0xd428_bc00 };

macro_rules! symbol {
    () => {
        concat!("__ebbmalloc_rseq_", env!("CARGO_PKG_VERSION"))
    };
}

// The area, a thread variable. Its `cpu_id` starts at -1: not registered.
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
    first = const FIRST_BYTES,
);

/// The calling thread's area and its offset from the thread pointer, which is the same in all
/// threads if `thread_variable::is_static`. Not used where there are no sequences.
pub(crate) fn own_area() -> (isize, *mut u32) {
    let area = thread_variable!(symbol!());
    (area.addr().wrapping_sub(thread_pointer()) as isize, area.cast())
}

/// Registers the calling thread's own area. The error is the kernel's.
pub(super) fn register() -> Result<(), c_int> {
    match rseq(0) {
        // The area was registered before.
        Err(libc::EBUSY) => Ok(()),
        result => result,
    }
}

/// Unregisters the area: the kernel sets its `cpu_id` to -1, and does not touch it any more.
pub(super) fn unregister() {
    // An error means that the area was not registered.
    let _ = rseq(UNREGISTER);
}

fn rseq(flags: c_int) -> Result<(), c_int> {
    call_with(length(features(), auxiliary::value(AT_RSEQ_ALIGN)), flags)
}

/// Calls rseq(2) for `bytes` bytes of the area, which has at least as many.
fn call_with(bytes: usize, flags: c_int) -> Result<(), c_int> {
    let (_, area) = own_area();
    // SAFETY: the area has `bytes` bytes, and lives until the thread has unregistered it.
    unsafe { call!(libc::SYS_rseq, area, bytes, flags, SIGNATURE) }.map(|_| ())
}

/// The bytes to register with a kernel that fills `features` bytes and requires alignment `align`.
/// That is all that it fills, if the area has them, or else the first version.
const fn length(features: usize, align: usize) -> usize {
    match features {
        FIRST_BYTES..=BYTES if align <= ALIGN => features,
        _ => FIRST_BYTES,
    }
}

/// The bytes of a thread's area that the kernel fills. 0 if the kernel does not tell.
pub(super) fn features() -> usize {
    auxiliary::value(AT_RSEQ_FEATURE_SIZE)
}

/// The error of a call of rseq(2) for no area: EINVAL if the kernel has rseq.
pub(super) fn refusal() -> c_int {
    // SAFETY: the kernel never registers an area of 0 bytes.
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
        // Before Linux 6.3; since then.
        assert_eq!([length(0, 0), length(28, 32), length(32, 32)], [32; 3]);
        // With time slice extensions.
        assert_eq!(length(33, 64), if ALIGN == 64 { 33 } else { 32 });
        assert_eq!([length(BYTES, ALIGN), length(BYTES + 1, ALIGN)], [BYTES, 32]);
        assert_eq!(length(33, 128), 32);
        assert_eq!((BYTES + size_of::<ThreadWords>()).next_multiple_of(ALIGN), 64);
        assert_eq!(own_area().1.addr() % ALIGN, 0);
    }

    /// Runs in a process of its own, in which the C library does not register rseq.
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
        // SAFETY: the field lies in the calling thread's area.
        let cpu_id =
            || unsafe { own_area().1.byte_offset(RseqArea::CPU_ID).read_volatile() } as i32;
        for _ in 0..1000 {
            assert_eq!(cpu_id(), -1);
            register().unwrap();
            assert!(cpu_id() >= 0);
            unregister();
        }

        // The kernel remembers the number of bytes, and refuses any other.
        register().unwrap();
        for bytes in FIRST_BYTES..=BYTES {
            let ours = bytes == length(features(), auxiliary::value(AT_RSEQ_ALIGN));
            let answer = if ours { libc::EBUSY } else { libc::EINVAL };
            assert_eq!(call_with(bytes, 0), Err(answer), "{bytes} bytes");
        }
        unregister();
        assert_eq!([0, UNREGISTER].map(|flags| call_with(FIRST_BYTES, flags)), [Ok(()); 2]);
    }
}
