//! Restartable sequences: operations on the cache of the calling thread's virtual CPU, each of
//! which the kernel either lets finish or restarts (rseq(2), `docs/rseq.md`).
//!
//! There is one file for each architecture; `none.rs` is for those without sequences. A cache is a
//! [`Slab`]: the sequences and the plain code in `frontend/slab/` work on the same layout.
//!
//! [`Slab`]: crate::frontend::slab::Slab

pub(crate) mod base;

#[cfg_attr(any(miri, loom), path = "none.rs")]
#[cfg_attr(all(target_arch = "x86_64", not(any(miri, loom))), path = "x86_64.rs")]
#[cfg_attr(
    all(target_arch = "aarch64", target_endian = "little", not(any(miri, loom))),
    path = "aarch64.rs"
)]
#[cfg_attr(
    not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little"))),
    path = "none.rs"
)]
mod arch;
pub(crate) use arch::{holds, pop, pop_batch, push, push_batch, replace_header, slab};

pub(crate) use base::PerCpuBase;

#[cfg(all(
    test,
    any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")),
    not(any(miri, loom))
))]
mod tests;
