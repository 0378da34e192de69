//! Keeps the file with this code loaded until the process ends.
//!
//! A library that contains the engine must not be unloaded: threads call it as they exit, forks
//! call its hooks, and the process may still hold its blocks.

use core::ffi::{c_char, c_int, c_void};
use core::mem::{self, MaybeUninit};
use core::ptr::NonNull;

use crate::platform::arch::weak;
use crate::platform::errno::keeping_errno;
use crate::platform::os::dlsym::next_function;

type Find = unsafe extern "C" fn(*const c_void, *mut libc::Dl_info) -> c_int;
type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

/// Called as the file's constructors run. Opens the file once more, so that dlclose(3) does not
/// unload it. (musl unloads none.)
pub(crate) fn stay_loaded() {
    let [glibc, find] = [weak!("gnu_get_libc_version"), weak!("dladdr")];
    if [glibc, find].iter().any(|function| function.is_null()) || !may_be_unloaded() {
        return;
    }
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the addresses are those of the functions of these names, which have these types.
    // dladdr(3) fills the struct, for which zeros will do. The name lives as long as the file.
    keeping_errno(|| unsafe {
        let find = mem::transmute::<*const u8, Find>(find);
        // libebbmalloc.so has a dlopen(3) of its own.
        let Some(open) = next_function(c"dlopen") else { return };
        let open = mem::transmute::<NonNull<c_void>, Open>(open);
        if find(stay_loaded as *const c_void, found.as_mut_ptr()) != 0 {
            let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
            open(found.assume_init().dli_fname, flags);
        }
    });
}

/// Whether the file is neither a program nor linked with `-z nodelete`, by its dynamic section
/// (elf(5)).
fn may_be_unloaded() -> bool {
    const END: usize = 0;
    /// Programs have this entry, for debuggers.
    const DEBUG: usize = 21;
    const FLAGS: usize = 0x6fff_fffb;
    const NODELETE: usize = 8;
    let mut entry = weak!("_DYNAMIC").cast::<[usize; 2]>();
    while !entry.is_null() {
        // SAFETY: the linker defines the symbol as a list of pairs, whose last has the key 0.
        let [key, value] = unsafe { entry.read() };
        match key {
            END => return true,
            DEBUG => return false,
            FLAGS if value & NODELETE != 0 => return false,
            _ => entry = entry.wrapping_add(1),
        }
    }
    false
}
