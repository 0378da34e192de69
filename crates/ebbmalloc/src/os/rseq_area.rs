//! Who registers threads for restartable sequences, and where their areas are: the C library, by the symbols
//! that glibc has since 2.35 (its manual, "Restartable Sequences"); or else this crate.

use core::ffi::c_int;

use super::own_area::{features, own_area, refusal, register, unregister};
use super::release::restarts_sequences;
use super::thread_variable::is_static;
use super::weak::weak;
use super::{Os, RseqArea};

/// Bytes of the kernel's rseq area that must be there for `mm_cid`.
const SIZE_WITH_MM_CID: usize = RseqArea::MM_CID as usize + size_of::<u32>();

/// Where there are sequences: `rseq/`.
const SEQUENCES: bool = cfg!(all(
    any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")),
    not(any(miri, loom))
));

/// The area, or why there is none that could be used.
pub(super) fn find(os: &impl Os) -> Result<RseqArea, &'static str> {
    if !SEQUENCES {
        return Err("no restartable sequences for this architecture yet");
    }
    let offset = weak!("__rseq_offset").cast::<isize>();
    let size = weak!("__rseq_size").cast::<u32>();
    let (offset, ours) = if offset.is_null() || size.is_null() {
        if !is_static() {
            return Err(NO_AREA);
        }
        // Tried, and undone: a thread registers when its exit is watched.
        register().map_err(|error| if error == libc::EINVAL { TAKEN } else { reason(error) })?;
        unregister();
        (own_area().0, true)
    } else {
        // SAFETY: the C library's variables, which never change once a program runs.
        let (offset, size) = unsafe { (*offset, *size) };
        if size == 0 {
            return Err(if turned_off(os) { TURNED_OFF } else { reason(refusal()) });
        }
        (offset, false)
    };
    restarts_sequences()?;
    let (id, at) = if features() >= SIZE_WITH_MM_CID {
        ("mm_cid", RseqArea::MM_CID)
    } else {
        ("cpu_id", RseqArea::CPU_ID)
    };
    Ok(RseqArea { offset, id_at: offset + at, id, ours })
}

/// Sequences want an area at the same distance from the thread pointer in all threads.
const NO_AREA: &str = "the C library registers no rseq, and a library that may be opened late has no room for areas of its own";
const TAKEN: &str = "another library has registered rseq, and the C library does not say where";
const TURNED_OFF: &str =
    "GLIBC_TUNABLES has glibc.pthread.rseq=0, which leaves rseq to another library";

/// Whether glibc was told not to register. Who says so does it for another library that wants to.
fn turned_off(os: &impl Os) -> bool {
    let mut text = [0; 512];
    let length = os.environment("GLIBC_TUNABLES", &mut text).unwrap_or(0);
    text[..length].split(|&byte| byte == b':').any(|entry| entry == b"glibc.pthread.rseq=0")
}

/// Why the kernel registers nobody.
fn reason(error: c_int) -> &'static str {
    match error {
        libc::ENOSYS => {
            "no rseq here (ENOSYS): an old kernel, or qemu, valgrind, gVisor or a filter of system calls"
        }
        libc::EPERM => "rseq is refused (EPERM), as by a filter of system calls (seccomp)",
        libc::EACCES => "rseq is refused (EACCES), as by a filter of system calls (seccomp)",
        libc::EINVAL => "glibc did not register rseq, though the kernel has it",
        _ => "rseq is refused",
    }
}
