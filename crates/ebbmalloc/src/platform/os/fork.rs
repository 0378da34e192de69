//! What happens around a fork: pthread_atfork(3), and the order of locks with the C library's streams.

use core::ffi::c_int;
use core::mem::transmute;

use crate::platform::kernel::errno::keeping_errno;
use crate::platform::kernel::weak::weak;

type Hook = Option<unsafe extern "C" fn()>;

unsafe extern "C" {
    // The libc crate has it for some targets only.
    fn pthread_atfork(before: Hook, parent: Hook, child: Hook) -> c_int;
}

/// Calls these around each fork, and holds glibc's lock of the list of streams meanwhile.
///
/// glibc takes that lock for a fork too, but after the hooks, when the engine's locks are taken. Another thread
/// may have it in `fflush(NULL)` and wait for a stream, and a third, which has the stream in `getline`,
/// for memory: then nobody goes on. So it is taken before the engine's locks, as glibc takes it before those of its own
/// malloc; its owner may take it again.
pub(super) fn at_fork(before: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
    let glibc = !weak!("_IO_list_lock").is_null();
    // SAFETY: the functions live as long as the program (the library is never unloaded). Hooks before a fork are
    // called in the opposite order, so those that are registered last get their lock first, and give it back last.
    keeping_errno(|| unsafe {
        pthread_atfork(Some(before), Some(parent), Some(child));
        if glibc {
            pthread_atfork(Some(lock_streams), Some(unlock_streams), Some(reset_streams));
        }
    });
}

/// A function of glibc that takes nothing and returns nothing, as a hook.
macro_rules! glibc {
    ($hook:ident, $name:literal) => {
        extern "C" fn $hook() {
            let address = weak!($name);
            // SAFETY: where glibc has it, its type is this.
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
// The child's lock is new where glibc thought the process had threads, and else the parent's.
glibc!(reset_streams, "_IO_list_resetlock");
