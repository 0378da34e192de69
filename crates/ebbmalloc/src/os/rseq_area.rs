//! Where the C library registered each thread for restartable sequences, by the symbols that
//! glibc has since 2.35 (its manual, "Restartable Sequences").

use super::weak::weak;

/// Offset of the area from the thread pointer and its size in bytes, 0 where registering failed;
/// or why there is none that could be used.
pub(super) fn registered_by_libc() -> Result<(isize, usize), &'static str> {
    let offset = weak!("__rseq_offset").cast::<isize>();
    let size = weak!("__rseq_size").cast::<u32>();
    if offset.is_null() || size.is_null() {
        return Err("the C library has no rseq support");
    }
    // SAFETY: the C library's variables, which never change once a program runs.
    unsafe { Ok((*offset, *size as usize)) }
}
