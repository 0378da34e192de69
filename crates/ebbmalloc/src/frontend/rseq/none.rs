//! Stubs for platforms without restartable sequences. None is ever called: `OsThreads::rseq` rules
//! percpu mode out there, and says why.

use super::PerCpuBase;
use crate::frontend::slab::Header;
use crate::size_class::SizeClass;

pub(crate) unsafe fn pop(_: PerCpuBase, _: SizeClass) -> *mut u8 {
    core::ptr::null_mut()
}

pub(crate) unsafe fn push(_: PerCpuBase, _: SizeClass, _: *mut u8) -> bool {
    false
}

pub(crate) unsafe fn push_batch(_: PerCpuBase, _: SizeClass, _: &[*mut u8]) -> usize {
    0
}

pub(crate) unsafe fn replace_header(
    _: PerCpuBase,
    _: SizeClass,
    _: Header,
    _: Header,
) -> Option<Header> {
    None
}
