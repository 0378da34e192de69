//! C++ operator new and delete, all forms, by their Itanium ABI names.
//!
//! Four operators do the work: `new` and `delete`, plain and aligned. The others forward to them
//! through the dynamic symbol, as the C++ standard has it ([new.delete]), so that a program that
//! replaces one of them gets the calls of all its forms. Where the engine knows what size each block was asked for
//! with (check and harden mode), sized deletes compare it, unless the program has operators of its own.
//!
//! Exceptions pass through these frames: they are `C-unwind` functions without anything to
//! clean up. What is thrown is the C++ library's own, which is found at run time: programs
//! without C++ have none, and never get here.

use core::ffi::c_void;
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use engine::internals::{ENGINE, MIN_ALIGN};

/// Passes the table of operators to a macro: the symbol of the Itanium C++ ABI, the function
/// here that does its work, and a hidden name for the symbol's definition beside it.
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
    fn _ZnwmSt11align_val_t(size: usize, align: usize) -> *mut c_void;
}

// No form of delete throws (they are `noexcept`), so forwarding to one is a jump.
unsafe extern "C" {
    fn _ZdlPv(block: *mut c_void);
    fn _ZdaPv(block: *mut c_void);
    fn _ZdlPvSt11align_val_t(block: *mut c_void, align: usize);
    fn _ZdaPvSt11align_val_t(block: *mut c_void, align: usize);
}

// The library's own definitions, by hidden names, so that they are these whatever a program defines.
unsafe extern "C" {
    static ebb_own_ZdlPv: u8;
    static ebb_own_ZdaPv: u8;
    static ebb_own_ZdlPvSt11align_val_t: u8;
    static ebb_own_ZdaPvSt11align_val_t: u8;
}

type New = unsafe extern "C-unwind" fn(usize) -> *mut c_void;
type AlignedNew = unsafe extern "C-unwind" fn(usize, usize) -> *mut c_void;
type Delete = unsafe extern "C" fn(*mut c_void);
type AlignedDelete = unsafe extern "C" fn(*mut c_void, usize);

/// The operators that others forward to, as the linker or the loader resolved their names: the
/// program's own, where it has some.
struct Base {
    new: New,
    aligned_new: AlignedNew,
    delete: Delete,
    array_delete: Delete,
    aligned_delete: AlignedDelete,
    aligned_array_delete: AlignedDelete,
}

static BASE: Base = Base {
    new: _Znwm,
    aligned_new: _ZnwmSt11align_val_t,
    delete: _ZdlPv,
    array_delete: _ZdaPv,
    aligned_delete: _ZdlPvSt11align_val_t,
    aligned_array_delete: _ZdaPvSt11align_val_t,
};

/// Calls an operator of [`BASE`], as the loader left it and not as the compiler sees it here.
macro_rules! base {
    ($field:ident($($arg:expr),*)) => {
        (&raw const BASE.$field).read_volatile()($($arg),*)
    };
}

/// An alignment as the engine takes it. One above the largest power of two is none that a type
/// could have, nor a block: it becomes that, which is beyond all memory.
#[inline(always)]
fn power_of_two(align: usize) -> usize {
    align.checked_next_power_of_two().unwrap_or(1 << (usize::BITS - 1))
}

/// Allocates, and throws `std::bad_alloc` where that fails for good.
#[inline(always)]
unsafe fn allocate(size: usize, align: usize) -> *mut c_void {
    let block = ENGINE.alloc_aligned(size, align);
    if !block.is_null() {
        return block.cast();
    }
    // SAFETY: the caller's, who lets exceptions pass.
    unsafe { allocate_slow(size, align) }
}

/// A function of the C++ library in this process, as the linker or the loader found it; else that
/// of a library that was loaded for some module alone.
macro_rules! cxx_library_symbol {
    ($name:literal) => {{
        let linked: *mut c_void;
        // A weak symbol that nobody defines has address 0.
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

/// Calls the new-handler and tries again, as long as there is one; then throws.
#[cold]
unsafe extern "C-unwind" fn allocate_slow(size: usize, align: usize) -> *mut c_void {
    // SAFETY: exceptions may pass.
    unsafe {
        let block = allocate_by_handler(size, align);
        if block.is_null() { throw_bad_alloc() } else { block }
    }
}

/// Throws `std::bad_alloc`: by the C++ library's own function, else, where a program has linked
/// the library without it, by what that would do (Itanium C++ ABI, "Exception Handling").
#[cold]
unsafe extern "C-unwind" fn throw_bad_alloc() -> *mut c_void {
    type Thrower = unsafe extern "C-unwind" fn() -> *mut c_void;
    type AllocateException = unsafe extern "C-unwind" fn(usize) -> *mut *mut c_void;
    type Throw = unsafe extern "C-unwind" fn(*mut *mut c_void, *mut c_void, *mut c_void) -> !;
    // SAFETY: the symbols are what their names say. A `bad_alloc` is a pointer to its virtual
    // functions, which follow two words of its virtual table.
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

/// Calls the new-handler and tries again, until there is memory, or no handler any more.
#[cold]
unsafe extern "C-unwind" fn allocate_by_handler(size: usize, align: usize) -> *mut c_void {
    type Handler = Option<unsafe extern "C-unwind" fn()>;
    type GetHandler = unsafe extern "C-unwind" fn() -> Handler;
    // SAFETY: the name is `std::get_new_handler`. A handler frees memory, throws, or ends the
    // program.
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

fn loaded_symbol(name: &str) -> Option<*mut c_void> {
    let name = name.as_ptr().cast();
    // SAFETY: a terminated name; looks it up and loads nothing that is not there.
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

/// The next definition of `name` after ours, looked up once.
fn next_symbol(cache: &AtomicPtr<c_void>, name: &str) -> *mut c_void {
    let known = cache.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: a terminated name; looks it up.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast()) };
    cache.store(found, Ordering::Relaxed);
    found
}

/// `new(size)`.
pub unsafe extern "C-unwind" fn new(size: usize) -> *mut c_void {
    // SAFETY: exceptions may pass.
    unsafe { allocate(size, MIN_ALIGN) }
}

/// `new(size, align)`.
pub unsafe extern "C-unwind" fn aligned_new(size: usize, align: usize) -> *mut c_void {
    // SAFETY: exceptions may pass.
    unsafe { allocate(size, power_of_two(align)) }
}

/// `delete(block)`.
pub unsafe extern "C-unwind" fn delete(block: *mut c_void) {
    // SAFETY: the caller gives the block up.
    unsafe { ENGINE.free(block.cast()) }
}

/// `delete(block, align)`.
pub unsafe extern "C-unwind" fn aligned_delete(block: *mut c_void, _align: usize) {
    // SAFETY: the caller gives the block up.
    unsafe { ENGINE.free(block.cast()) }
}

/// Defines forms that only forward to an operator of [`BASE`], which takes some of the arguments.
macro_rules! forward {
    ($($name:ident($($arg:ident: $ty:ty),+) $(-> $ret:ty)? => $base:ident($($passed:ident),+);)+) => {$(
        #[doc = concat!("Forwards to the program's `", stringify!($base), "`.")]
        pub unsafe extern "C-unwind" fn $name($($arg: $ty),+) $(-> $ret)? {
            // SAFETY: the caller's, passed on.
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

/// Defines sized forms of delete, which forward to an operator of [`BASE`] as well, unless the size is to be compared:
/// that is where all operators on the way are our own.
macro_rules! sized {
    ($($name:ident($($arg:ident)?) => $base:ident, own $($on_the_way:ident = $own:ident),+; align $align:expr;)+) => {$(
        #[doc = concat!("Forwards to the program's `", stringify!($base), "`, or compares the size.")]
        pub unsafe extern "C-unwind" fn $name(block: *mut c_void, size: usize $(, $arg: usize)?) {
            // SAFETY: the caller's, passed on.
            unsafe {
                if !ENGINE.knows_sizes() || $(!is_own!($on_the_way, $own))||+ {
                    base!($base(block $(, $arg)?))
                } else if !block.is_null() {
                    ENGINE.free_if_sized(block.cast(), size, $align)
                }
            }
        }
    )+};
}

/// Whether an operator of [`BASE`] is the one that this library defines.
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
        own aligned_array_delete = ebb_own_ZdaPvSt11align_val_t, aligned_delete = ebb_own_ZdlPvSt11align_val_t;
        align power_of_two(align);
}

/// Defines forms of `new` that give null instead of throwing. Whatever a replaced `new` or a
/// new-handler throws must be caught, which takes C++: the C++ library's own form, the next
/// definition of the symbol after ours, calls the base operator in a `try`. Where there is none,
/// the base operator is ours, and the C++ library, if any, is in the program itself: there
/// alone, what a new-handler throws passes.
macro_rules! nothrow {
    ($($name:ident($($arg:ident),+) = $symbol:literal, align $align:expr;)+) => {$(
        #[doc = concat!("`", $symbol, "`: null where there is no memory.")]
        pub unsafe extern "C-unwind" fn $name(
            $($arg: usize,)+ tag: *const c_void
        ) -> *mut c_void {
            type Next = unsafe extern "C-unwind" fn(
                $(nothrow!(@usize $arg),)+ *const c_void
            ) -> *mut c_void;
            static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
            // SAFETY: the next function of this name has this type.
            unsafe {
                let next = next_symbol(&NEXT, concat!($symbol, "\0"));
                if !next.is_null() {
                    return transmute::<*mut c_void, Next>(next)($($arg,)+ tag);
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
    nothrow_new(size) = "_ZnwmRKSt9nothrow_t", align MIN_ALIGN;
    nothrow_array_new(size) = "_ZnamRKSt9nothrow_t", align MIN_ALIGN;
    nothrow_aligned_new(size, align) = "_ZnwmSt11align_val_tRKSt9nothrow_t",
        align power_of_two(align);
    nothrow_aligned_array_new(size, align) = "_ZnamSt11align_val_tRKSt9nothrow_t",
        align power_of_two(align);
}
