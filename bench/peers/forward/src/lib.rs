//! `forward!` exports the C allocation functions from a `cdylib`: each is one jump to the peer's
//! function of the same signature, which finds arguments and stack as its caller left them.

/// Exports each name as a jump to the function of the peer after the `=`.
#[macro_export]
macro_rules! forward {
    ($($name:ident = $to:path),* $(,)?) => {$(
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            $crate::jump!($to)
        }
    )*};
}

#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
#[macro_export]
macro_rules! jump {
    ($to:path) => {
        ::core::arch::naked_asm!("jmp {}", sym $to)
    };
}

#[cfg(target_arch = "aarch64")]
#[doc(hidden)]
#[macro_export]
macro_rules! jump {
    ($to:path) => {
        ::core::arch::naked_asm!("b {}", sym $to)
    };
}
