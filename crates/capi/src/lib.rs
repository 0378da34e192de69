//! Makes libebbmalloc.so, to preload or to link.
//!
//! The loader finds a program's own C++ operators before the library's.

#![no_std]

// musl's `dlopen` ignores the flag.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod deep_binding;

/// Defines an exported symbol that jumps to a function. The definition also gets a hidden name,
/// with the prefix `ebb_own`, which no program can replace.
macro_rules! export {
    ($($symbol:ident = $function:ident;)+) => {$(
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        extern "C" fn $symbol() {
            core::arch::naked_asm!(
                concat!(".globl ebb_own", stringify!($symbol)),
                concat!(".hidden ebb_own", stringify!($symbol)),
                concat!("ebb_own", stringify!($symbol), ":"),
                #[cfg(target_arch = "x86_64")]
                "jmp {function}",
                #[cfg(target_arch = "aarch64")]
                "b {function}",
                function = sym cabi::cxx::$function,
            )
        }
    )+};
}

cabi::cxx_operators!(export);

#[cfg(not(test))]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    cabi::panicked(info)
}
