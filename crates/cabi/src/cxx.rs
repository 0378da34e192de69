//! Defines C++ operator new and delete in all forms, for their Itanium ABI names.
//!
//! Four operators do the work: `new` and `delete`, plain and aligned. The others forward to them
//! through the dynamic symbol, as the C++ standard demands ([new.delete]). So a program that
//! replaces one of the four gets the calls of all its forms. In check and harden mode the engine
//! knows the requested size of each block. There, sized deletes compare it, unless the program has
//! operators of its own.
//!
//! Exceptions pass through these frames: they are `C-unwind` functions with nothing to clean up.
//! The C++ library, found at run time, throws the exception. Programs without C++ have no such
//! library, and never get here.

use core::ffi::c_void;
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use engine::internals::{ENGINE, MIN_ALIGN};

/// Passes the table of operators to a macro: the symbol of the Itanium C++ ABI, and the function of
/// this module that implements it.
#[macro_export]
macro_rules! cxx_operators {
    ($define:ident) => {
        $define! {
            _Znwm = new;
            _Znam = array_new;
            _ZnwmRKSt9nothrow_t = nothrow_new;
            _ZnamRKSt9nothrow_t = nothrow_array_new;
            _ZnwmSt11align_val_t = aligned_new;
            _ZnamSt11align_val_t = aligned_array_new;
            _ZnwmSt11align_val_tRKSt9nothrow_t = nothrow_aligned_new;
            _ZnamSt11align_val_tRKSt9nothrow_t = nothrow_aligned_array_new;
            _ZdlPv = delete;
            _ZdlPvm = sized_delete;
            _ZdlPvRKSt9nothrow_t = to_delete;
            _ZdaPv = to_delete;
            _ZdaPvm = sized_array_delete;
            _ZdaPvRKSt9nothrow_t = to_array_delete;
            _ZdlPvSt11align_val_t = aligned_delete;
            _ZdlPvmSt11align_val_t = sized_aligned_delete;
            _ZdlPvSt11align_val_tRKSt9nothrow_t = to_aligned_delete;
            _ZdaPvSt11align_val_t = to_aligned_delete;
            _ZdaPvmSt11align_val_t = sized_aligned_array_delete;
            _ZdaPvSt11align_val_tRKSt9nothrow_t = to_aligned_array_delete;
        }
    };
}

unsafe extern "C-unwind" {
    fn _Znwm(size: usize) -> *mut c_void;
    fn _Znam(size: usize) -> *mut c_void;
    fn _ZnwmSt11align_val_t(size: usize, align: usize) -> *mut c_void;
    fn _ZnamSt11align_val_t(size: usize, align: usize) -> *mut c_void;
}

// No form of delete throws (they are `noexcept`), so forwarding to one is a jump.
unsafe extern "C" {
    fn _ZdlPv(block: *mut c_void);
    fn _ZdaPv(block: *mut c_void);
    fn _ZdlPvSt11align_val_t(block: *mut c_void, align: usize);
    fn _ZdaPvSt11align_val_t(block: *mut c_void, align: usize);
}

// The library's own definitions under hidden names, which no program can replace.
unsafe extern "C" {
    static ebb_own_Znwm: u8;
    static ebb_own_Znam: u8;
    static ebb_own_ZnwmSt11align_val_t: u8;
    static ebb_own_ZnamSt11align_val_t: u8;
    static ebb_own_ZdlPv: u8;
    static ebb_own_ZdaPv: u8;
    static ebb_own_ZdlPvSt11align_val_t: u8;
    static ebb_own_ZdaPvSt11align_val_t: u8;
}

type New = unsafe extern "C-unwind" fn(usize) -> *mut c_void;
type AlignedNew = unsafe extern "C-unwind" fn(usize, usize) -> *mut c_void;
type Delete = unsafe extern "C" fn(*mut c_void);
type AlignedDelete = unsafe extern "C" fn(*mut c_void, usize);

/// The operators that the others forward to, as the linker or the loader resolved their names. If
/// the program defines some, they are the program's.
struct Base {
    new: New,
    array_new: New,
    aligned_new: AlignedNew,
    aligned_array_new: AlignedNew,
    delete: Delete,
    array_delete: Delete,
    aligned_delete: AlignedDelete,
    aligned_array_delete: AlignedDelete,
}

static BASE: Base = Base {
    new: _Znwm,
    array_new: _Znam,
    aligned_new: _ZnwmSt11align_val_t,
    aligned_array_new: _ZnamSt11align_val_t,
    delete: _ZdlPv,
    array_delete: _ZdaPv,
    aligned_delete: _ZdlPvSt11align_val_t,
    aligned_array_delete: _ZdaPvSt11align_val_t,
};

/// Calls an operator of [`BASE`]. The read is volatile: the loader may have put another address
/// there than the compiler sees.
macro_rules! base {
    ($field:ident($($arg:expr),*)) => {
        (&raw const BASE.$field).read_volatile()($($arg),*)
    };
}

/// Rounds an alignment up to a power of two, as the engine demands. An alignment above the largest
/// power of two becomes that one, for which no memory suffices: no type can have either.
#[inline(always)]
fn power_of_two(align: usize) -> usize {
    align.checked_next_power_of_two().unwrap_or(1 << (usize::BITS - 1))
}

/// Allocates, or throws `std::bad_alloc` if no new-handler helps.
#[inline(always)]
unsafe fn allocate(size: usize, align: usize) -> *mut c_void {
    let block = ENGINE.alloc_aligned(size, align);
    if !block.is_null() {
        return block.cast();
    }
    // SAFETY: the caller lets exceptions pass.
    unsafe { allocate_slow(size, align) }
}

/// Finds a symbol of the C++ library in this process, as the linker or the loader resolved it. Else
/// searches libraries that were loaded for one module only.
macro_rules! cxx_library_symbol {
    ($name:literal) => {{
        let linked: *mut c_void;
        // An undefined weak symbol has address 0.
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!(
            concat!(".weak ", $name),
            concat!("mov {linked}, qword ptr [rip + ", $name, "@GOTPCREL]"),
            linked = out(reg) linked,
            options(nomem, nostack, preserves_flags),
        );
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!(
            concat!(".weak ", $name),
            concat!("adrp {linked}, :got:", $name),
            concat!("ldr {linked}, [{linked}, :got_lo12:", $name, "]"),
            linked = out(reg) linked,
            options(nomem, nostack, preserves_flags),
        );
        if linked.is_null() { loaded_symbol(concat!($name, "\0")) } else { Some(linked) }
    }};
}

/// Calls the new-handler and tries again while one is set, then throws.
#[cold]
unsafe extern "C-unwind" fn allocate_slow(size: usize, align: usize) -> *mut c_void {
    // SAFETY: the caller lets exceptions pass.
    unsafe {
        let block = allocate_by_handler(size, align);
        if block.is_null() { throw_bad_alloc() } else { block }
    }
}

/// Throws `std::bad_alloc` by the C++ library's own function. If the program linked the library
/// without it, throws by the steps of that function (Itanium C++ ABI, "Exception Handling").
#[cold]
unsafe extern "C-unwind" fn throw_bad_alloc() -> *mut c_void {
    type Thrower = unsafe extern "C-unwind" fn() -> *mut c_void;
    type AllocateException = unsafe extern "C-unwind" fn(usize) -> *mut *mut c_void;
    type Throw = unsafe extern "C-unwind" fn(*mut *mut c_void, *mut c_void, *mut c_void) -> !;
    // SAFETY: the C++ ABI gives the symbols these types. A `bad_alloc` is one pointer, to its
    // virtual functions, which follow the first two words of its virtual table.
    unsafe {
        if let Some(thrower) = cxx_library_symbol!("_ZSt17__throw_bad_allocv") {
            return transmute::<*mut c_void, Thrower>(thrower)();
        }
        if let (Some(allocate), Some(throw), Some(class), Some(table), Some(destructor)) = (
            cxx_library_symbol!("__cxa_allocate_exception"),
            cxx_library_symbol!("__cxa_throw"),
            cxx_library_symbol!("_ZTISt9bad_alloc"),
            cxx_library_symbol!("_ZTVSt9bad_alloc"),
            cxx_library_symbol!("_ZNSt9bad_allocD1Ev"),
        ) {
            let exception =
                transmute::<*mut c_void, AllocateException>(allocate)(size_of::<*mut c_void>());
            exception.write(table.byte_add(2 * size_of::<*mut c_void>()));
            transmute::<*mut c_void, Throw>(throw)(exception, class, destructor);
        }
    }
    ENGINE.fail("operator new: no memory, and no C++ library to throw bad_alloc")
}

/// Calls the new-handler and tries again, until there is memory or no handler is set.
#[cold]
unsafe extern "C-unwind" fn allocate_by_handler(size: usize, align: usize) -> *mut c_void {
    type Handler = Option<unsafe extern "C-unwind" fn()>;
    type GetHandler = unsafe extern "C-unwind" fn() -> Handler;
    // SAFETY: the symbol is `std::get_new_handler`, which has this type. A handler frees memory,
    // throws, or ends the program.
    unsafe {
        let Some(get_handler) = cxx_library_symbol!("_ZSt15get_new_handlerv") else {
            return ptr::null_mut();
        };
        while let Some(handler) = transmute::<*mut c_void, GetHandler>(get_handler)() {
            handler();
            let block = ENGINE.alloc_aligned(size, align);
            if !block.is_null() {
                return block.cast();
            }
        }
    }
    ptr::null_mut()
}

/// Finds a symbol, by a name that ends in a zero byte, among the loaded libraries.
fn loaded_symbol(name: &str) -> Option<*mut c_void> {
    let name = name.as_ptr().cast();
    // SAFETY: the name ends in a zero byte. `RTLD_NOLOAD` loads no further library.
    unsafe {
        let mut symbol = libc::dlsym(libc::RTLD_DEFAULT, name);
        for library in [c"libstdc++.so.6", c"libc++.so.1"] {
            if symbol.is_null() {
                let library = libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
                if !library.is_null() {
                    symbol = libc::dlsym(library, name);
                }
            }
        }
        (!symbol.is_null()).then_some(symbol)
    }
}

/// The next definition of `name` after this library's, looked up until found once.
fn next_symbol(cache: &AtomicPtr<c_void>, name: &str) -> *mut c_void {
    let known = cache.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: the name ends in a zero byte.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast()) };
    cache.store(found, Ordering::Relaxed);
    found
}

/// `new(size)`.
pub unsafe extern "C-unwind" fn new(size: usize) -> *mut c_void {
    // SAFETY: C++ callers let exceptions pass.
    unsafe { allocate(size, MIN_ALIGN) }
}

/// `new(size, align)`.
pub unsafe extern "C-unwind" fn aligned_new(size: usize, align: usize) -> *mut c_void {
    // SAFETY: C++ callers let exceptions pass.
    unsafe { allocate(size, power_of_two(align)) }
}

/// `delete(block)`.
pub unsafe extern "C-unwind" fn delete(block: *mut c_void) {
    // SAFETY: the caller owns the block, and does not use it again.
    unsafe { ENGINE.free(block.cast()) }
}

/// `delete(block, align)`.
pub unsafe extern "C-unwind" fn aligned_delete(block: *mut c_void, _align: usize) {
    // SAFETY: the caller owns the block, and does not use it again.
    unsafe { ENGINE.free(block.cast()) }
}

/// Defines forms that forward to an operator of [`BASE`], with some of their arguments.
macro_rules! forward {
    ($(
        $name:ident($($arg:ident: $ty:ty),+) $(-> $ret:ty)? => $base:ident($($passed:ident),+);
    )+) => {$(
        #[doc = concat!("Forwards to the program's `", stringify!($base), "`.")]
        pub unsafe extern "C-unwind" fn $name($($arg: $ty),+) $(-> $ret)? {
            // SAFETY: the caller fulfils the contract of this form, which includes the base
            // operator's.
            unsafe { base!($base($($passed),+)) }
        }
    )+};
}

forward! {
    array_new(size: usize) -> *mut c_void => new(size);
    aligned_array_new(size: usize, align: usize) -> *mut c_void => aligned_new(size, align);
    to_delete(block: *mut c_void) => delete(block);
    to_array_delete(block: *mut c_void) => array_delete(block);
    to_aligned_delete(block: *mut c_void, align: usize) => aligned_delete(block, align);
    to_aligned_array_delete(block: *mut c_void, align: usize)
        => aligned_array_delete(block, align);
}

/// Defines sized forms of delete. They compare the size if the engine knows sizes, and if all
/// operators on the way are the library's own. Else they forward to an operator of [`BASE`].
macro_rules! sized {
    ($(
        $name:ident($($arg:ident)?) => $base:ident,
            own $($on_the_way:ident = $own:ident),+; align $align:expr;
    )+) => {$(
        #[doc = concat!("Compares the size, or forwards to `", stringify!($base), "`.")]
        pub unsafe extern "C-unwind" fn $name(block: *mut c_void, size: usize $(, $arg: usize)?) {
            // SAFETY: the caller owns the block, and does not use it again.
            unsafe {
                if !ENGINE.all_in_heaps() || $(!is_own!($on_the_way, $own))||+ {
                    base!($base(block $(, $arg)?))
                } else if !block.is_null() {
                    ENGINE.free_if_sized(block.cast(), size, $align)
                }
            }
        }
    )+};
}

/// Whether an operator of [`BASE`] is this library's own.
macro_rules! is_own {
    ($operator:ident, $own:ident) => {
        ptr::addr_eq((&raw const BASE.$operator).read_volatile() as *const (), &raw const $own)
    };
}

sized! {
    sized_delete() => delete, own delete = ebb_own_ZdlPv; align MIN_ALIGN;
    sized_array_delete() => array_delete,
        own array_delete = ebb_own_ZdaPv, delete = ebb_own_ZdlPv; align MIN_ALIGN;
    sized_aligned_delete(align) => aligned_delete,
        own aligned_delete = ebb_own_ZdlPvSt11align_val_t; align power_of_two(align);
    sized_aligned_array_delete(align) => aligned_array_delete,
        own aligned_array_delete = ebb_own_ZdaPvSt11align_val_t,
            aligned_delete = ebb_own_ZdlPvSt11align_val_t;
        align power_of_two(align);
}

/// Defines forms of `new` that return null instead of throwing.
///
/// They must catch exceptions of a replaced `new` or a new-handler, which only C++ can. So they
/// call the C++ library's own form, the next definition of the symbol after this library's. That
/// calls the base operator in a `try`. If there is no next definition, a C++ library, if any, is
/// linked into the program. Only then do exceptions of a replaced `new` or a new-handler pass.
macro_rules! nothrow {
    ($(
        $name:ident($($arg:ident),+) = $symbol:literal => $base:ident,
            own $($on_the_way:ident = $own:ident),+; align $align:expr;
    )+) => {$(
        #[doc = concat!("`", $symbol, "`: returns null without memory.")]
        pub unsafe extern "C-unwind" fn $name(
            $($arg: usize,)+ tag: *const c_void
        ) -> *mut c_void {
            type Next = unsafe extern "C-unwind" fn(
                $(nothrow!(@usize $arg),)+ *const c_void
            ) -> *mut c_void;
            static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
            // SAFETY: the C++ ABI gives every function of this name this type.
            unsafe {
                let next = next_symbol(&NEXT, concat!($symbol, "\0"));
                if !next.is_null() {
                    return transmute::<*mut c_void, Next>(next)($($arg,)+ tag);
                }
                if $(!is_own!($on_the_way, $own))||+ {
                    return base!($base($($arg),+));
                }
                let (size, align) = nothrow!(@size $($arg),+; $align);
                let block = ENGINE.alloc_aligned(size, align);
                if block.is_null() { allocate_by_handler(size, align) } else { block.cast() }
            }
        }
    )+};
    (@usize $arg:ident) => { usize };
    (@size $size:ident $(, $arg:ident)?; $align:expr) => { ($size, $align) };
}

nothrow! {
    nothrow_new(size) = "_ZnwmRKSt9nothrow_t" => new,
        own new = ebb_own_Znwm; align MIN_ALIGN;
    nothrow_array_new(size) = "_ZnamRKSt9nothrow_t" => array_new,
        own array_new = ebb_own_Znam, new = ebb_own_Znwm; align MIN_ALIGN;
    nothrow_aligned_new(size, align) = "_ZnwmSt11align_val_tRKSt9nothrow_t" => aligned_new,
        own aligned_new = ebb_own_ZnwmSt11align_val_t; align power_of_two(align);
    nothrow_aligned_array_new(size, align) = "_ZnamSt11align_val_tRKSt9nothrow_t"
        => aligned_array_new,
        own aligned_array_new = ebb_own_ZnamSt11align_val_t,
            aligned_new = ebb_own_ZnwmSt11align_val_t;
        align power_of_two(align);
}
