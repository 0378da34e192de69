//! Defines the functions of `ebbmalloc.h` by which C programs change options while they run, and
//! hear when memory is short.

use core::ffi::{CStr, c_char, c_int};

use engine::internals::ENGINE;
use engine::{OnPressure, OnRefusal, SetError};

use crate::set_errno;

/// Changes an option from now on. Returns 0, or -1 and sets ENOENT for an unknown name, EINVAL for
/// a value that is not understood, ENOTSUP for an option that can be set at start only, EPERM if it
/// cannot be changed now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebb_ctl(name: *const c_char, value: *const c_char) -> c_int {
    let changed = if name.is_null() || value.is_null() {
        Err(SetError::UnknownValue)
    } else {
        // SAFETY: the caller passes C strings.
        match unsafe { (CStr::from_ptr(name).to_str(), CStr::from_ptr(value).to_str()) } {
            (Ok(name), Ok(value)) => ENGINE.set(name, value),
            _ => Err(SetError::UnknownValue),
        }
    };
    let Err(error) = changed else { return 0 };
    set_errno(match error {
        SetError::UnknownName => libc::ENOENT,
        SetError::UnknownValue => libc::EINVAL,
        SetError::OnlyAtStart | SetError::NotHere => libc::ENOTSUP,
        SetError::NotNow => libc::EPERM,
    });
    -1
}

/// Calls this function when a request for memory is refused; none for null.
#[unsafe(no_mangle)]
pub extern "C" fn ebb_on_refusal(call: Option<OnRefusal>) {
    ENGINE.on_refusal(call);
}

/// Calls this function when `percent` percent of the limit are held; none for null.
#[unsafe(no_mangle)]
pub extern "C" fn ebb_on_pressure(percent: c_int, call: Option<OnPressure>) {
    ENGINE.on_pressure(percent.clamp(0, 100) as u8, call);
}
