//! Finds out whether the C library or the engine registers threads for restartable sequences, and
//! where their areas lie.
//!
//! glibc registers them since 2.35, and has symbols for the location (its manual, "Restartable
//! Sequences").

use core::ffi::c_int;

use super::interface::{OsProcess, RseqArea};
use super::own_area::{features, own_area, refusal, register, unregister};
use super::release::restarts_sequences;
use super::thread_variable::is_static;
use crate::platform::arch::{IS_KNOWN, name_loader, weak};

/// Bytes of an rseq area that includes `mm_cid`.
const SIZE_WITH_MM_CID: usize = RseqArea::MM_CID as usize + size_of::<u32>();

/// The rseq area, or the reason why there is none to use.
pub(super) fn find(os: &impl OsProcess) -> Result<RseqArea, &'static str> {
    if !IS_KNOWN {
        return Err("no restartable sequences for this architecture yet");
    }
    name_loader();
    let offset = weak!("__rseq_offset").cast::<isize>();
    let size = weak!("__rseq_size").cast::<u32>();
    let (offset, ours) = if offset.is_null() || size.is_null() {
        if !is_static() {
            return Err(NO_AREA);
        }
        // Only a trial: a thread registers once its exit is watched.
        register().map_err(|error| if error == libc::EINVAL { IN_USE } else { reason(error) })?;
        unregister();
        (own_area().0, true)
    } else {
        // SAFETY: the addresses are those of the C library's variables, which do not change once a
        // program runs.
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

/// Sequences need an area at the same distance from the thread pointer in all threads. These are
/// the reasons why there is none.
const NO_AREA: &str = "the C library registers no rseq, and a library that may be opened late has \
    no room for areas of its own";
const IN_USE: &str =
    "rseq is registered already, and no symbol __rseq_offset in this program says where";
const TURNED_OFF: &str =
    "GLIBC_TUNABLES has glibc.pthread.rseq=0, which leaves rseq to another library";

/// Whether `GLIBC_TUNABLES` keeps glibc from registering, which lets another library register.
fn turned_off(os: &impl OsProcess) -> bool {
    let mut text = [0; 512];
    let length = os.environment("GLIBC_TUNABLES", &mut text).unwrap_or(0);
    text[..length].split(|&byte| byte == b':').any(|entry| entry == b"glibc.pthread.rseq=0")
}

/// Why the kernel registers no area, by the error that it returned.
fn reason(error: c_int) -> &'static str {
    match error {
        libc::ENOSYS => {
            "no rseq here (ENOSYS): an old kernel, or qemu, valgrind, gVisor or a filter of system \
             calls"
        }
        libc::EPERM => "rseq is refused (EPERM), as by a filter of system calls (seccomp)",
        libc::EACCES => "rseq is refused (EACCES), as by a filter of system calls (seccomp)",
        libc::EINVAL => "glibc did not register rseq, though the kernel has it",
        _ => "rseq is refused",
    }
}
