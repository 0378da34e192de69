//! Serves the engine as part of a process: exit, environment, clock and random numbers.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;

use super::super::hooks::{Hooks, Process};
use super::super::interface::OsProcess;
use super::super::native::NativeFor;
use super::events::{AT_EXIT, exiting};
use super::text::{units, utf8};
use crate::platform::kernel::windows::{
    FreeEnvironmentStringsW, GetEnvironmentStringsW, GetTickCount64, RtlGetVersion, Version,
    fill_with_random, keeping_error,
};

/// The most bytes of a variable that are passed on.
const VARIABLE_BYTES: usize = 500;

impl<P: Process> OsProcess for NativeFor<P> {
    fn hooks(&self) -> Option<&'static Hooks> {
        P::HOOKS
    }

    fn kernel(&self) -> [u32; 2] {
        let length = size_of::<Version>() as u32;
        let mut version = Version { length, major: 0, minor: 0, rest: [0; 66] };
        // SAFETY: the call fills the struct, whose length is in it.
        unsafe { RtlGetVersion(&mut version) };
        [version.major, version.minor]
    }

    fn random(&self) -> u64 {
        let mut bits = 0_u64;
        // SAFETY: the call fills the number.
        keeping_error(|| unsafe {
            fill_with_random((&raw mut bits).cast(), size_of::<u64>() as u32)
        });
        bits
    }

    fn now_ms(&self) -> u64 {
        // SAFETY: the call has no conditions.
        unsafe { GetTickCount64() }
    }

    /// Names of variables have no case on Windows; they are passed in upper case.
    fn for_each_variable(&self, prefix: &str, work: &mut dyn FnMut(&[u8])) {
        // SAFETY: the call returns texts, each with a zero behind it; an empty one is the last.
        // They stay until they are freed.
        keeping_error(|| unsafe {
            let all = GetEnvironmentStringsW();
            let mut at = all.cast_const();
            while !at.is_null() && at.read() != 0 {
                let (mut entry, of_prefix) = ([0; VARIABLE_BYTES + 32], prefix.len().min(32));
                let length = utf8(units(at), &mut entry[..VARIABLE_BYTES + of_prefix]);
                let entry = &mut entry[..length];
                let name_bytes = entry.iter().position(|&byte| byte == b'=').unwrap_or(0);
                entry[..name_bytes].make_ascii_uppercase();
                if let Some(rest) = entry.strip_prefix(prefix.as_bytes()) {
                    work(rest);
                }
                at = at.add(units(at).count() + 1);
            }
            FreeEnvironmentStringsW(all);
        });
    }

    /// There are no forks.
    fn at_fork(&self, _: extern "C" fn(), _: extern "C" fn(), _: extern "C" fn()) {}

    /// As the C runtime exits, as it does after `main`; else, as after `std::process::exit`, when
    /// Windows has ended all other threads.
    fn at_exit(&self, call: extern "C" fn()) {
        AT_EXIT.store(call as *mut c_void, Ordering::Relaxed);
        // SAFETY: the function is never unloaded before the runtime has called it.
        unsafe { atexit(exiting) };
    }
}

unsafe extern "C" {
    fn atexit(call: extern "C" fn()) -> c_int;
}

#[cfg(test)]
mod tests {
    use super::super::super::native::Native;
    use super::*;

    #[test]
    fn windows_has_a_version_a_clock_and_random_numbers() {
        assert!(Native.kernel()[0] >= 6 && Native.now_ms() > 0);
        assert_ne!(Native.random(), Native.random());
    }
}
