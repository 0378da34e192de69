//! Runs hooks around forks: pthread_atfork(3). Keeps the engine's locks in order with those of the
//! C library's streams.

use core::ffi::c_int;
use core::mem::transmute;

use crate::platform::kernel::errno::keeping_errno;
use crate::platform::kernel::weak::weak;

type Hook = Option<unsafe extern "C" fn()>;

unsafe extern "C" {
    // In the libc crate for some targets only.
    fn pthread_atfork(before: Hook, parent: Hook, child: Hook) -> c_int;
}

/// Calls these hooks around each fork, and holds glibc's lock of its list of streams meanwhile.
///
/// glibc takes this lock for a fork itself, but after the hooks, when the engine's locks are
/// taken. A second thread may hold it in `fflush(NULL)` and wait for a stream. A third may hold
/// that stream in `getline` and wait for memory: a deadlock. So the hooks take the lock before the
/// engine's locks, as glibc takes it before those of its own malloc. The lock is recursive.
pub(super) fn at_fork(before: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
    let glibc = !weak!("_IO_list_lock").is_null();
    // SAFETY: the functions live as long as the program, as the library is never unloaded. Hooks
    // before a fork run last to first, and those after it first to last. So the hooks registered
    // last take their lock first, and free it last.
    keeping_errno(|| unsafe {
        pthread_atfork(Some(before), Some(parent), Some(child));
        if glibc {
            pthread_atfork(Some(lock_streams), Some(unlock_streams), Some(reset_streams));
        }
    });
}

/// Defines a hook that calls a function of glibc without arguments or result.
macro_rules! glibc {
    ($hook:ident, $name:literal) => {
        extern "C" fn $hook() {
            let address = weak!($name);
            // SAFETY: the address is null, which is `None`, or that of a glibc function of this
            // type.
            unsafe {
                if let Some(function) = transmute::<*const u8, Hook>(address) {
                    function();
                }
            }
        }
    };
}

glibc!(lock_streams, "_IO_list_lock");
glibc!(unlock_streams, "_IO_list_unlock");
// In the child, glibc resets the lock itself if it thought that the process had threads; if not,
// the parent's state remains.
glibc!(reset_streams, "_IO_list_resetlock");
