//! Loads GCC's unwinder into programs that have none, as most C programs: check mode and sampling
//! need stacks of calls.

/// Loads the unwinder if the process has none. Only a constructor may call it: loading allocates,
/// and takes the loader's locks, so it must not happen within a call of the allocator.
#[cold]
pub(crate) fn load() {
    if !engine::internals::unwinder_is_missing() {
        return;
    }
    // SAFETY: the names end in zero bytes. The library is never unloaded, so its functions stay.
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
