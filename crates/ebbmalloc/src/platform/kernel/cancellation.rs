//! Keeps the functions of the C library that are cancellation points from ending a thread
//! (pthread_cancel(3)): allocating must not be one.

/// Runs `work`, in which the thread is not cancelled.
#[cfg(not(target_os = "android"))]
pub(crate) fn without_cancellation<R>(work: impl FnOnce() -> R) -> R {
    use core::ffi::c_int;

    const DISABLE: c_int = if cfg!(target_os = "macos") { 0 } else { 1 };
    unsafe extern "C" {
        fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    }
    let (mut before, mut none) = (0, 0);
    // SAFETY: both calls fill the variable that they are given.
    unsafe {
        pthread_setcancelstate(DISABLE, &mut before);
        let result = work();
        pthread_setcancelstate(before, &mut none);
        result
    }
}

/// Runs `work`: Android cancels no threads.
#[cfg(target_os = "android")]
pub(crate) fn without_cancellation<R>(work: impl FnOnce() -> R) -> R {
    work()
}
