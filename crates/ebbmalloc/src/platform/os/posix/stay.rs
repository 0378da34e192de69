//! Keeps the file with this code loaded until the process ends: see `os/stay.rs`.

use core::ffi::c_void;
use core::mem::MaybeUninit;

use crate::platform::errno::keeping_errno;

/// Called as the file's constructors run. Opens the file once more, so that dlclose(3) does not
/// unload it.
pub(crate) fn stay_loaded() {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr(3) fills the struct, for which zeros will do. The name lives as long as the
    // file.
    keeping_errno(|| unsafe {
        if libc::dladdr(stay_loaded as *const c_void, found.as_mut_ptr()) != 0 {
            let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
            libc::dlopen(found.assume_init().dli_fname, flags);
        }
    });
}
