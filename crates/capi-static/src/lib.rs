//! Makes libebbmalloc.a.
//!
//! Its C++ operators are weak symbols, so that a program that defines some of them can link it.

#![no_std]

mod beside;

/// Defines a weak symbol that jumps to a function. The definition also gets a hidden name, with the
/// prefix `ebb_own`, which no program can replace.
macro_rules! export_weak {
    ($($symbol:ident = $function:ident;)+) => {$(
        core::arch::global_asm!(
            concat!(".weak ", stringify!($symbol)),
            concat!(".type ", stringify!($symbol), ", @function"),
            concat!(".globl ebb_own", stringify!($symbol)),
            concat!(".hidden ebb_own", stringify!($symbol)),
            concat!("ebb_own", stringify!($symbol), ":"),
            concat!(stringify!($symbol), ":"),
            #[cfg(target_arch = "x86_64")]
            "jmp {function}",
            #[cfg(target_arch = "aarch64")]
            "b {function}",
            function = sym cabi::cxx::$function,
        );
    )+};
}

cabi::cxx_operators!(export_weak);

#[cfg(not(test))]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    cabi::panicked(info)
}
