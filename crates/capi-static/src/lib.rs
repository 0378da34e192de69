//! libebbmalloc.a. Its C++ operators are weak symbols, so that a program that defines some of
//! them itself can be linked with it.

#![no_std]

/// Defines a weak symbol that jumps to a function, and a hidden name for this definition of it: `ebb_own`
/// in front.
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

/// Has linkers keep all functions of libc's malloc where they keep anything of this: Zig's own leaves out what nothing in
/// the program names, and then the C library would get blocks from its own calloc and free them here.
macro_rules! keep_together {
    ($($name:ident)+) => {
        unsafe extern "C" {
            $(fn $name();)+
        }

        extern "C" fn name_all() {
            core::hint::black_box([$($name as unsafe extern "C" fn()),+]);
        }

        #[used]
        #[unsafe(link_section = ".init_array")]
        static NAME_ALL: extern "C" fn() = name_all;
    };
}

keep_together! {
    aligned_alloc calloc free free_aligned_sized free_sized mallinfo mallinfo2 malloc malloc_info malloc_stats malloc_trim
    malloc_usable_size mallopt memalign posix_memalign pvalloc realloc reallocarray valloc
}

#[cfg(not(test))]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    cabi::panicked(info)
}
