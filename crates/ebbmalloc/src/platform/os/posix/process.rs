//! Serves the engine as part of a process: forks, exit, environment, clock and random numbers.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering};

use super::super::hooks::{Hooks, Process};
use super::super::interface::OsProcess;
use super::super::native::NativeFor;
use super::system::{environment, is_privileged};
use crate::platform::errno::keeping_errno;
use crate::platform::kernel::bytes::string;
use crate::platform::kernel::futex::reset_after_fork;

impl<P: Process> OsProcess for NativeFor<P> {
    fn hooks(&self) -> Option<&'static Hooks> {
        P::HOOKS
    }

    fn kernel(&self) -> [u32; 2] {
        let mut system = MaybeUninit::<libc::utsname>::zeroed();
        // SAFETY: the call fills the struct; zeros are empty strings. The text ends in a zero.
        let release = keeping_errno(|| unsafe {
            libc::uname(system.as_mut_ptr());
            string((&raw const (*system.as_ptr()).release).cast())
        });
        let mut numbers = release.split(|byte| !byte.is_ascii_digit()).map(|digits| {
            digits.iter().fold(0_u32, |number, digit| {
                number.wrapping_mul(10).wrapping_add(u32::from(digit - b'0'))
            })
        });
        [numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)]
    }

    fn random(&self) -> u64 {
        let mut bits = 0_u64;
        // SAFETY: the call fills the number.
        unsafe { arc4random_buf((&raw mut bits).cast(), size_of::<u64>()) };
        bits
    }

    fn now_ms(&self) -> u64 {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call fills the struct.
        keeping_errno(|| unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) });
        let now_ms = now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000;
        if BEGUN_MS.load(Ordering::Relaxed) == 0 {
            BEGUN_MS.store(now_ms, Ordering::Relaxed);
        }
        now_ms
    }

    fn for_each_variable(&self, prefix: &str, work: &mut dyn FnMut(&[u8])) {
        let mut entry = environment();
        if entry.is_null() || is_privileged() {
            return;
        }
        // SAFETY: a list of C strings that ends in a null pointer.
        unsafe {
            while !(*entry).is_null() {
                if let Some(rest) = string(*entry).strip_prefix(prefix.as_bytes()) {
                    work(rest);
                }
                entry = entry.add(1);
            }
        }
    }

    /// Hooks after a fork run first to last: words can be waited on again before the engine's does.
    fn at_fork(&self, before: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
        // SAFETY: the functions live as long as the program.
        keeping_errno(|| unsafe {
            pthread_atfork(None, None, Some(reset_after_fork));
            pthread_atfork(Some(before), Some(parent), Some(child));
        });
    }

    fn at_exit(&self, call: extern "C" fn()) {
        // SAFETY: the function lives as long as the program.
        keeping_errno(|| unsafe { libc::atexit(call) });
    }
}

/// When the engine first asked for the time: soon after the process started.
pub(super) static BEGUN_MS: AtomicU64 = AtomicU64::new(0);

type Hook = Option<extern "C" fn()>;

unsafe extern "C" {
    // In the libc crate for some targets only.
    fn pthread_atfork(before: Hook, parent: Hook, child: Hook) -> c_int;
    fn arc4random_buf(buffer: *mut c_void, bytes: usize);
}

#[cfg(test)]
mod tests {
    use super::super::super::native::Native;
    use super::*;

    #[test]
    fn the_system_has_a_version_a_clock_and_random_numbers() {
        assert!(Native.kernel()[0] > 0 && Native.now_ms() > 0);
        assert_ne!(Native.random(), Native.random());
    }
}
