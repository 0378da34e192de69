//! Looks symbols up by name, where the C library has dlsym(3).

use core::ffi::{CStr, c_char, c_void};
use core::mem;
use core::ptr::NonNull;

use crate::platform::arch::weak;

/// The first symbol of this name in the process.
pub(super) fn global_symbol(name: &CStr) -> Option<NonNull<c_void>> {
    find(libc::RTLD_DEFAULT, name)
}

/// The function of this name in the files behind this one. A program may have none, such as
/// dlopen(3) before glibc 2.34.
pub fn next_function(name: &CStr) -> Option<NonNull<c_void>> {
    find(libc::RTLD_NEXT, name)
}

fn find(among: *mut c_void, name: &CStr) -> Option<NonNull<c_void>> {
    type Find = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    let find = weak!("dlsym");
    if find.is_null() {
        return None;
    }
    // SAFETY: the address is that of the function of this name, which has this type.
    NonNull::new(unsafe { mem::transmute::<*const u8, Find>(find)(among, name.as_ptr()) })
}
