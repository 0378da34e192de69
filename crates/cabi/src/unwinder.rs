//! Stacks for check mode in programs that have no unwinder, as most C programs: the one that GCC brings is loaded.

/// Loads it where it is wanted and missing. To be called by a constructor: loading allocates, and takes the loader's
/// locks, so not in the middle of any call of the allocator.
#[cold]
pub(crate) fn load() {
    if !engine::internals::unwinder_is_missing() {
        return;
    }
    // SAFETY: terminated names. What is loaded stays, so that the functions do.
    unsafe {
        let library = libc::dlopen(c"libgcc_s.so.1".as_ptr(), libc::RTLD_NOW);
        if library.is_null() {
            return;
        }
        let functions = [c"_Unwind_Backtrace", c"_Unwind_GetIP", c"_Unwind_GetCFA"]
            .map(|name| libc::dlsym(library, name.as_ptr()));
        if functions.iter().all(|function| !function.is_null()) {
            engine::internals::use_unwinder(functions);
        }
    }
}
