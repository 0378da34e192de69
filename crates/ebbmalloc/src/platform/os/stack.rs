//! Reads stacks of calls, and finds symbols by the C library's dladdr(3). Neither allocates.
//!
//! Fully static programs of GCC have no search table for unwinding, which `unwind` needs. There the
//! program's own unwinder serves.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::{self, MaybeUninit};
use core::{ptr, slice};

use super::symbol::Symbol;
use super::{symtab, unwind};
use crate::platform::arch::weak;
use crate::platform::kernel::auxiliary;
use crate::platform::sync::{AtomicU8, Ordering};

/// Functions of the unwinder (Itanium C++ ABI, "Exception Handling").
type Step = extern "C" fn(*mut c_void, *mut c_void) -> c_int;
type Backtrace = unsafe extern "C" fn(Step, *mut c_void) -> c_int;
type GetAddress = unsafe extern "C" fn(*mut c_void) -> usize;

/// The state of the unwinder in a fully static program.
///
/// Before constructors run, the unwinder aborts. When it first reads a table of the program, it
/// allocates a block with a lock held. It would take that lock again to read the stack of the
/// allocation. The same happens when it frees the block at the end.
static STATE: AtomicU8 = AtomicU8::new(UNUSABLE);
const UNUSABLE: u8 = 0;
/// The unwinder works, but has not read all tables.
const UNPREPARED: u8 = 1;
const READY: u8 = 2;

/// Called as the program's constructors run: from now on the unwinder works.
pub(crate) fn constructors_run() {
    STATE.store(UNPREPARED, Ordering::Relaxed);
}

/// Called as the program's destructors run, the last code of a program: the unwinder is not used
/// any more.
pub(crate) fn destructors_run() {
    STATE.store(UNUSABLE, Ordering::Relaxed);
}

/// Whether the program is fully static: no dynamic loader has loaded it.
fn is_static() -> bool {
    auxiliary::value(libc::AT_BASE) == 0
}

/// The functions of an unwinder.
#[derive(Clone, Copy)]
struct Unwinder {
    backtrace: Backtrace,
    /// Returns the address in a frame's function at which it goes on.
    address: GetAddress,
}

/// The unwinder of the program, as the linker found it.
fn unwinder() -> Option<Unwinder> {
    // Without dladdr(3), addresses have no names, so no stack is worth reading.
    let found = [weak!("dladdr"), weak!("_Unwind_Backtrace"), weak!("_Unwind_GetIP")];
    let [_, backtrace, address] = found;
    // SAFETY: none is null, so these are the functions of those names, which have these types.
    (!found.contains(&ptr::null())).then(|| unsafe {
        Unwinder {
            backtrace: mem::transmute::<*const u8, Backtrace>(backtrace),
            address: mem::transmute::<*const u8, GetAddress>(address),
        }
    })
}

/// The state of reading a stack.
struct Calls<'a> {
    out: &'a mut [usize],
    unwinder: Unwinder,
    /// The number of calls in `out`.
    count: usize,
}

/// Writes the stack of calls to `out`, innermost first, as the addresses of the calls' last bytes.
/// Returns their number.
pub(super) fn calls(out: &mut [usize]) -> usize {
    if is_static() { calls_by_program(out) } else { unwind::calls(out) }
}

#[inline(never)]
fn calls_by_program(out: &mut [usize]) -> usize {
    const GO_ON: c_int = 0;
    const END: c_int = 5;
    extern "C" fn note(context: *mut c_void, calls: *mut c_void) -> c_int {
        // SAFETY: the pointer is that of `calls` below, which is not used while the unwinder runs.
        let calls = unsafe { &mut *calls.cast::<Calls>() };
        // SAFETY: the unwinder passes its own context.
        let address = unsafe { (calls.unwinder.address)(context) };
        let Some(call) = calls.out.get_mut(calls.count).filter(|_| address != 0) else {
            return END;
        };
        *call = address - 1;
        calls.count += 1;
        GO_ON
    }
    let Some(unwinder) = unwinder().filter(|_| is_prepared()) else {
        return 0;
    };
    let mut calls = Calls { out, unwinder, count: 0 };
    // SAFETY: by the ABI, this calls `note` with a context for each frame, and with the pointer.
    unsafe { (unwinder.backtrace)(note, (&raw mut calls).cast()) };
    calls.count
}

/// Whether the unwinder of a fully static program has read all tables. Makes it read them the
/// first time after constructors have run.
fn is_prepared() -> bool {
    type Find = unsafe extern "C" fn(*const c_void, *mut [usize; 3]) -> *const c_void;
    match STATE.compare_exchange(UNPREPARED, UNUSABLE, Ordering::Acquire, Ordering::Acquire) {
        Ok(_) => {
            let find = weak!("_Unwind_Find_FDE");
            if !find.is_null() {
                // SAFETY: the address is that of the function in libgcc, which fills the array. No
                // code lies at address 1, so it reads all tables.
                unsafe {
                    let find = mem::transmute::<*const u8, Find>(find);
                    find(ptr::without_provenance(1), &mut [0; 3]);
                }
            }
            STATE.store(READY, Ordering::Release);
            true
        }
        Err(state) => state == READY,
    }
}

/// Implements [`super::interface::OsReports::with_symbol`] by dladdr(3).
pub(super) fn with_symbol(address: usize, may_read: bool, work: &mut dyn FnMut(Option<Symbol>)) {
    type Look = unsafe extern "C" fn(*const c_void, *mut libc::Dl_info) -> c_int;
    let look = weak!("dladdr");
    if look.is_null() {
        return work(None);
    }
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr(3) fills the struct, for which all-zero bytes are valid too. The names that
    // it returns stay while their file is loaded, as it is while its code is on a stack.
    let (base, path, exported) = unsafe {
        let look = mem::transmute::<*const u8, Look>(look);
        let found = look(ptr::without_provenance(address), info.as_mut_ptr()) != 0;
        let info = info.assume_init();
        let text = |name: *const c_char| (!name.is_null()).then(|| CStr::from_ptr(name));
        let exported = text(info.dli_sname)
            .map(|name| (name.to_bytes(), address.wrapping_sub(info.dli_saddr.addr())));
        match found {
            true => (
                info.dli_fbase.cast::<u8>().cast_const(),
                text(info.dli_fname).unwrap_or(c"?"),
                exported,
            ),
            // In a fully static program dladdr(3) finds nothing.
            false if is_static() && is_of_program(address) => {
                let path = auxiliary::value(libc::AT_EXECFN);
                let path = text(ptr::with_exposed_provenance(path)).unwrap_or(c"?");
                (program_start(), path, None)
            }
            false => return work(None),
        }
    };
    // SAFETY: `base` is null, or the address of a whole ELF header.
    let (fixed, header) = unsafe {
        (is_fixed(base), (!base.is_null()).then(|| slice::from_raw_parts(base, HEADER_BYTES)))
    };
    let offset = if fixed { address } else { address - base.addr() };
    let module = path.to_bytes();
    let Some(header) = header.filter(|_| may_read && exported.is_none()) else {
        return work(Some(Symbol { module, offset, function: exported }));
    };
    // The path by which the program was started may name another file by now.
    let path = if base == program_start() { c"/proc/self/exe" } else { path };
    symtab::with_name(path, header, offset, |function| {
        work(Some(Symbol { module, offset, function }));
    });
}

/// Whether this library comes behind another one that has a `malloc` too. `own` is an address of
/// code of this library. True also in a program, where others may have allocated by now.
pub fn has_malloc_of_others(own: usize) -> bool {
    let module_of = |address| {
        let mut module = None;
        with_symbol(address, false, &mut |symbol| {
            module = symbol.map(|found| found.module.as_ptr())
        });
        module
    };
    is_of_program(own) || module_of(own) != module_of(libc::malloc as *const () as usize)
}

/// Bytes of an ELF header.
const HEADER_BYTES: usize = 64;

fn program_start() -> *const u8 {
    ptr::with_exposed_provenance(auxiliary::program_start())
}

/// Whether code of the program lies at this address.
fn is_of_program(address: usize) -> bool {
    let start = program_start();
    // SAFETY: the kernel tells the address and number of the program headers. They lie in the page
    // at `start`.
    let (headers, fixed) = unsafe {
        let at = auxiliary::value(libc::AT_PHDR);
        let count = auxiliary::value(libc::AT_PHNUM);
        let at = ptr::with_exposed_provenance::<libc::Elf64_Phdr>(at);
        if at.is_null() || start.cast::<u32>().read_unaligned() != u32::from_ne_bytes(*b"\x7fELF") {
            return false;
        }
        (slice::from_raw_parts(at, count), is_fixed(start))
    };
    let offset = if fixed { address } else { address.wrapping_sub(start.addr()) };
    headers.iter().any(|header| {
        let within = offset.wrapping_sub(header.p_vaddr as usize) < header.p_memsz as usize;
        header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0 && within
    })
}

/// Whether a file was linked for the address at which it is loaded (ELF's type ET_EXEC).
///
/// # Safety
/// `header` is null, or the address of an ELF header.
unsafe fn is_fixed(header: *const u8) -> bool {
    const TYPE_AT: usize = 16;
    const FIXED: u16 = 2;
    // SAFETY: the caller guarantees a whole header.
    !header.is_null() && unsafe { header.add(TYPE_AT).cast::<u16>().read_unaligned() } == FIXED
}

#[cfg(all(test, not(any(miri, loom))))]
mod tests {
    use std::string::String;
    use std::vec::Vec;

    use super::*;

    #[inline(never)]
    fn caller(out: &mut [usize]) -> usize {
        let count = calls(out);
        // Prevents a tail call.
        std::hint::black_box(count)
    }

    #[test]
    fn the_caller_is_on_the_stack() {
        let mut out = [0; 32];
        let count = caller(&mut out);
        assert!(count >= 3, "{count}");
        let start = caller as *const () as usize;
        let within = |address: &usize| (start..start + 400).contains(address);
        assert!(out[..count].iter().any(within), "{start:#x} not in {:#x?}", &out[..count]);
        assert_eq!(caller(&mut out[..2]), 2);
    }

    /// The file, offset and function at an address.
    fn symbol(address: usize) -> Option<(String, usize, Option<String>)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut found = None;
        with_symbol(address, true, &mut |symbol| {
            found = symbol.map(|symbol| {
                (text(symbol.module), symbol.offset, symbol.function.map(|(name, _)| text(name)))
            });
        });
        found
    }

    /// A stack reads the same again, and a stack that differs in one call is not mistaken for it.
    #[test]
    fn a_stack_that_was_read_before_is_told_from_others() {
        // Two functions with equal frames but different return addresses.
        #[inline(never)]
        fn first(out: &mut [usize]) -> usize {
            std::hint::black_box(caller(out)) ^ std::hint::black_box(1)
        }
        #[inline(never)]
        fn second(out: &mut [usize]) -> usize {
            std::hint::black_box(caller(out)) ^ std::hint::black_box(2)
        }
        let mut stacks = Vec::new();
        for _ in 0..6 {
            for (function, number) in [(first as fn(&mut [usize]) -> usize, 1), (second, 2)] {
                let mut out = [0; 64];
                let count = function(&mut out) ^ number;
                assert!(count >= 3);
                stacks.push(out[..count].to_vec());
            }
        }
        assert!(stacks.iter().step_by(2).all(|stack| *stack == stacks[0]), "{stacks:x?}");
        assert!(stacks.iter().skip(1).step_by(2).all(|stack| *stack == stacks[1]));
        assert_ne!(stacks[0], stacks[1]);
    }

    #[test]
    fn the_file_of_an_address_is_known() {
        let (file, offset, function) = symbol(libc::malloc as *const () as usize).unwrap();
        assert!(offset > 0 && !file.is_empty() && function.is_some_and(|name| !name.is_empty()));
        let (file, _, function) = symbol(symbol_of_this_file as *const () as usize).unwrap();
        assert!(file.contains("ebbmalloc"), "{file}");
        assert!(function.is_some_and(|name| name.contains("symbol_of_this_file")));
        assert!(symbol(1).is_none());
    }

    #[inline(never)]
    fn symbol_of_this_file() {}
}
