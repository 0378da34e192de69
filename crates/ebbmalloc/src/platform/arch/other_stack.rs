// `call_on` by the processor's own instructions: the files of some processors include this.

/// The symbol of [`call_on`]. It includes the version: a program may contain several versions of
/// this crate.
macro_rules! call_on_symbol {
    () => {
        concat!("__ebbmalloc_call_on_", env!("CARGO_PKG_VERSION"))
    };
}

/// Defines [`call_on`] by these instructions, which keep the frame pointer for unwinders.
macro_rules! define_call_on {
    ($($instruction:literal),+ $(,)?) => {
        core::arch::global_asm!(
            ".pushsection .text.ebbmalloc, \"ax\", @progbits",
            concat!(".globl ", call_on_symbol!()),
            concat!(".hidden ", call_on_symbol!()),
            concat!(".type ", call_on_symbol!(), ", @function"),
            ".balign 16",
            concat!(call_on_symbol!(), ":"),
            ".cfi_startproc",
            // Unwinders then expect that the caller's frame may lie on another stack.
            ".cfi_signal_frame",
            $($instruction,)+
            ".cfi_endproc",
            concat!(".size ", call_on_symbol!(), ", . - ", call_on_symbol!()),
            ".popsection",
        );
    };
}

unsafe extern "C" {
    /// Calls `function` with these arguments on another stack, which ends at `top`. Unwinders get
    /// from there to the caller: the frame pointer leads to this function's frame.
    ///
    /// # Safety
    /// `top` is a multiple of 16, and the bytes below it are a stack that nothing else uses.
    #[link_name = call_on_symbol!()]
    pub(crate) fn call_on(
        top: *mut u8,
        function: extern "C" fn(usize, usize),
        first: usize,
        second: usize,
    );
}
