// `instruction` and `call_on` without knowledge of the processor: the files of others include this.

/// # Safety
/// Any context will do.
pub(crate) unsafe fn instruction(_: *const c_void) -> usize {
    0
}

/// Calls `function` with these arguments, on the same stack.
///
/// # Safety
/// The call has no conditions.
pub(crate) unsafe fn call_on(
    _top: *mut u8,
    function: extern "C" fn(usize, usize),
    first: usize,
    second: usize,
) {
    function(first, second);
}
