//! Serves the engine as part of a process: forks, exit, environment, clock and random numbers.

use core::ffi::{c_char, c_int};
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::hooks::{Hooks, Process};
use super::interface::OsProcess;
use super::native::NativeFor;
use super::release;
use super::without_c_library::without_c_library;
use crate::platform::arch::IS_MALLOC;
use crate::platform::arch::weak;
use crate::platform::errno::keeping_errno;
use crate::platform::kernel::bytes::string;
use crate::platform::kernel::proc::for_each_initial_variable;
use crate::platform::kernel::syscall::call;
use crate::platform::kernel::{auxiliary, clock};

/// Whether the sanitizer's allocator serves `malloc`.
static IS_WITHDRAWN: AtomicBool = AtomicBool::new(false);

impl<P: Process> OsProcess for NativeFor<P> {
    fn hooks(&self) -> Option<&'static Hooks> {
        P::HOOKS
    }

    /// With another malloc than its own, each of these sanitizers fails. AddressSanitizer's
    /// `strdup` and others return blocks that `free` does not know. ThreadSanitizer reports a data
    /// race if a thread gets a block that another one freed. MemorySanitizer calls functions that
    /// it has not found yet.
    fn objection(&self) -> Option<&'static str> {
        if !IS_MALLOC || IS_WITHDRAWN.load(Ordering::Relaxed) {
            return None;
        }
        let sanitizers = [
            ("AddressSanitizer", weak!("__asan_init")),
            ("ThreadSanitizer", weak!("__tsan_init")),
            ("MemorySanitizer", weak!("__msan_init")),
        ];
        sanitizers.into_iter().find(|(_, init)| !init.is_null()).map(|(name, _)| name)
    }

    fn withdraw_objection(&self) {
        IS_WITHDRAWN.store(true, Ordering::Relaxed);
    }

    fn kernel(&self) -> [u32; 2] {
        release::kernel()
    }

    fn random(&self) -> u64 {
        let mut bits = 0u64;
        let size = size_of::<u64>();
        // SAFETY: the kernel fills at most `size` bytes of the number.
        let filled =
            unsafe { call!(libc::SYS_getrandom, &raw mut bits, size, libc::GRND_NONBLOCK) };
        if filled == Ok(size) {
            return bits;
        }
        // Early in the boot, or in a sandbox. AT_RANDOM is the address of 16 random bytes.
        let given = ptr::with_exposed_provenance::<u64>(auxiliary::value(libc::AT_RANDOM));
        if given.is_null() {
            return 0;
        }
        // SAFETY: the kernel put 16 bytes there, which stay as long as the process lives.
        unsafe { given.read_unaligned() ^ given.add(1).read_unaligned().rotate_left(32) }
    }

    fn now_ms(&self) -> u64 {
        let now = clock::time(libc::CLOCK_MONOTONIC_COARSE);
        now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
    }

    fn for_each_variable(&self, prefix: &str, work: &mut dyn FnMut(&[u8])) {
        if auxiliary::value(libc::AT_SECURE) != 0 {
            return;
        }
        // SAFETY: `environ` is null before the C library has started; then it is a list of C
        // strings that ends in a null pointer.
        unsafe {
            let mut entry = environ;
            if entry.is_null() {
                entry = EARLY_ENVIRONMENT.load(Ordering::Relaxed);
            }
            if entry.is_null() {
                return for_each_initial_variable(prefix.as_bytes(), work);
            }
            while !(*entry).is_null() {
                let entry_bytes = string(*entry);
                if let Some(rest) = entry_bytes.strip_prefix(prefix.as_bytes()) {
                    work(rest);
                }
                entry = entry.add(1);
            }
        }
    }

    fn options_in_code(&self) -> &'static [u8] {
        let pointer = if IS_MALLOC { weak!("ebb_options") } else { ptr::null() };
        if pointer.is_null() {
            return b"";
        }
        // SAFETY: ebbmalloc.h declares the symbol as a pointer, which is null or leads to a C
        // string that the program does not change.
        unsafe {
            let options = *pointer.cast::<*const c_char>();
            if options.is_null() { b"" } else { string(options) }
        }
    }

    fn out_of_memory(&self) {
        // SAFETY: the address of this thread's `errno` is valid while the thread lives.
        unsafe { *libc::__errno_location() = libc::ENOMEM }
    }

    /// Holds glibc's lock of its list of streams meanwhile, too.
    ///
    /// glibc takes this lock for a fork itself, but after the hooks, when the engine's locks are
    /// taken. A second thread may hold it in `fflush(NULL)` and wait for a stream. A third may hold
    /// that stream in `getline` and wait for memory: a deadlock. So the hooks take the lock before
    /// the engine's locks, as glibc takes it before those of its own malloc. The lock is recursive.
    fn at_fork(&self, before: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
        let glibc = !weak!("_IO_list_lock").is_null();
        // SAFETY: the functions live as long as the program, as the library is never unloaded.
        // Hooks before a fork run last to first, and those after it first to last. So the hooks
        // registered last take their lock first, and free it last.
        keeping_errno(|| unsafe {
            pthread_atfork(Some(before), Some(parent), Some(child));
            if glibc {
                pthread_atfork(Some(lock_streams), Some(unlock_streams), Some(reset_streams));
            }
        });
    }

    fn at_exit(&self, call: extern "C" fn()) {
        // SAFETY: the function is never unloaded: it is part of the program, or of a library that
        // stays.
        keeping_errno(|| unsafe { libc::atexit(call) });
    }
}

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// The environment, as constructors get it that run before those of the C library; else null.
static EARLY_ENVIRONMENT: AtomicPtr<*const c_char> = AtomicPtr::new(ptr::null_mut());

/// Records the environment, unless the C library knows it. In a program without a C library, does
/// what that does before constructors run.
///
/// glibc's loader replaces `GLIBC_TUNABLES` in this list, and cuts the text that the kernel shows.
///
/// # Safety
/// If `environ` is null, the argument is a list of C strings that ends in a null pointer, or null.
pub unsafe fn note_environment(list: *const *const c_char) {
    if let Some(begin) = without_c_library() {
        begin();
    }
    // SAFETY: only the address is read.
    if unsafe { environ }.is_null() {
        EARLY_ENVIRONMENT.store(list.cast_mut(), Ordering::Relaxed);
    }
}

type Hook = Option<unsafe extern "C" fn()>;

unsafe extern "C" {
    // In the libc crate for some targets only.
    fn pthread_atfork(before: Hook, parent: Hook, child: Hook) -> c_int;
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
