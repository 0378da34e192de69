//! No restartable sequences: nothing below is ever called, since `registered_by_libc` says no.

use super::{Place, Pushed};
use crate::cache::Header;

pub(crate) fn registered_by_libc() -> Option<(isize, usize)> {
    None
}

pub(crate) unsafe fn pop(_: &Place, _: usize) -> *mut u8 {
    core::ptr::null_mut()
}

pub(crate) unsafe fn push(_: &Place, _: usize, _: *mut u8) -> Pushed {
    Pushed::Full
}

pub(crate) unsafe fn push_batch(_: &Place, _: usize, _: &[*mut u8]) -> usize {
    0
}

pub(crate) unsafe fn pop_batch(_: &Place, _: usize, _: u32, _: &mut [*mut u8]) -> usize {
    0
}

pub(crate) unsafe fn replace_header(_: &Place, _: usize, _: Header, _: Header) -> Option<Header> {
    None
}
