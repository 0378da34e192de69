//! Who called: stacks of calls by the unwinder that the process has anyway, and what lies at an address by the
//! C library. Neither allocates.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::{self, MaybeUninit};
use core::{ptr, slice};

use super::recent::{self, CALLS_MOST, Recent};
use super::symtab;
use crate::platform::kernel::auxiliary;
use crate::platform::kernel::weak::weak;
use crate::platform::sync::{AtomicPtr, AtomicU8, Ordering};

/// What lies at an address of code.
#[derive(Clone, Copy, Debug)]
pub struct Symbol<'a> {
    /// The file that it was loaded from.
    pub module: &'a [u8],
    /// Where in it, as tools that read the file count.
    pub offset: usize,
    /// The function, where its name is known, and how far into it.
    pub function: Option<(&'a [u8], usize)>,
}

/// Functions of the unwinder (Itanium C++ ABI, "Exception Handling").
type Step = extern "C" fn(*mut c_void, *mut c_void) -> c_int;
type Backtrace = unsafe extern "C" fn(Step, *mut c_void) -> c_int;
type GetAddress = unsafe extern "C" fn(*mut c_void) -> usize;

/// An unwinder that was loaded for this; null for none.
static LOADED: [AtomicPtr<c_void>; 3] = [const { AtomicPtr::new(ptr::null_mut()) }; 3];

/// How far the unwinder of a fully static program is. Before constructors run, it aborts. When it comes to a table of the program
/// for the first time, it allocates, and holds a lock meanwhile that it would take again for that block's stack; so it does
/// when it frees that block in the end.
static STATE: AtomicU8 = AtomicU8::new(AWAY);
const AWAY: u8 = 0;
const BEGUN: u8 = 1;
const READY: u8 = 2;

/// Constructors run.
pub(crate) fn constructors_run() {
    STATE.store(BEGUN, Ordering::Relaxed);
}

/// Destructors run, the last things that a program does.
pub(crate) fn destructors_run() {
    STATE.store(AWAY, Ordering::Relaxed);
}

/// Whether nobody has loaded the program: it is static as a whole.
fn is_static() -> bool {
    auxiliary::value(libc::AT_BASE) == 0
}

/// An unwinder.
#[derive(Clone, Copy)]
struct Unwinder {
    backtrace: Backtrace,
    /// The address that a frame returns to, and that of its end.
    address: GetAddress,
    end: GetAddress,
}

/// The unwinder: that of the program, as the linker or the loader found it, or one that was loaded.
fn unwinder() -> Option<Unwinder> {
    // Without it nothing says what lies at an address, so no stack is worth reading.
    if weak!("dladdr").is_null() {
        return None;
    }
    let mut found = [weak!("_Unwind_Backtrace"), weak!("_Unwind_GetIP"), weak!("_Unwind_GetCFA")]
        .map(|known| known.cast_mut().cast());
    if found.contains(&ptr::null_mut()) {
        found = [0, 1, 2].map(|nth: usize| LOADED[nth].load(Ordering::Acquire));
    }
    let [backtrace, address, end] = found;
    // SAFETY: these are the functions of those names.
    (!found.contains(&ptr::null_mut())).then(|| unsafe {
        Unwinder {
            backtrace: mem::transmute::<*mut c_void, Backtrace>(backtrace),
            address: mem::transmute::<*mut c_void, GetAddress>(address),
            end: mem::transmute::<*mut c_void, GetAddress>(end),
        }
    })
}

/// Whether the process has no unwinder, but could load one: it is dynamically linked.
pub fn unwinder_is_missing() -> bool {
    unwinder().is_none() && !weak!("dladdr").is_null() && !is_static()
}

/// Has stacks read by these functions of an unwinder, where the process has none of its own.
///
/// # Safety
/// They are `_Unwind_Backtrace`, `_Unwind_GetIP` and `_Unwind_GetCFA`, and stay where they are.
pub unsafe fn use_unwinder(functions: [*mut c_void; 3]) {
    for (loaded, function) in LOADED.iter().zip(functions).rev() {
        loaded.store(function, Ordering::Release);
    }
}

struct Calls<'a> {
    out: &'a mut [usize],
    unwinder: Unwinder,
    known: usize,
    /// The same to be kept, as long as it is known where return addresses lie.
    recent: Recent,
    whole: bool,
}

/// Writes the calls that led here, the innermost first: the addresses of their last bytes. How many.
#[inline(never)]
pub(super) fn calls(out: &mut [usize]) -> usize {
    const GO_ON: c_int = 0;
    const END: c_int = 5;
    extern "C" fn note(context: *mut c_void, calls: *mut c_void) -> c_int {
        // SAFETY: passed below, and nobody else uses it meanwhile.
        let calls = unsafe { &mut *calls.cast::<Calls>() };
        // SAFETY: the unwinder's own context.
        let address = unsafe { (calls.unwinder.address)(context) };
        if address == 0 || calls.known == calls.out.len() {
            return END;
        }
        // SAFETY: as above.
        calls.keep(address, unsafe { (calls.unwinder.end)(context) });
        calls.out[calls.known] = address - 1;
        calls.known += 1;
        GO_ON
    }
    let Some(unwinder) = unwinder() else {
        return 0;
    };
    if is_static() && !is_prepared() {
        return 0;
    }
    let mut calls = Calls { out, unwinder, known: 0, recent: Recent::NONE, whole: true };
    // In this frame, so it tells where that is.
    calls.recent.place = (&raw const calls).addr();
    // SAFETY: this frame is the first of the stack.
    if let Some(known) = unsafe { recent::find(calls.recent.place, calls.out) } {
        return known;
    }
    // SAFETY: as the ABI has it.
    unsafe { (unwinder.backtrace)(note, (&raw mut calls).cast()) };
    if calls.whole {
        recent::keep(&calls.recent);
    }
    calls.known
}

impl Calls<'_> {
    /// Keeps a return address into a frame whose stack pointer is `end`: on x86-64 it lies right below that. Where it does not, as on
    /// other processors or below a signal handler, such a stack is read anew each time.
    fn keep(&mut self, address: usize, end: usize) {
        let (nth, word) = (self.known, end.wrapping_sub(size_of::<usize>()));
        let before = if nth == 0 { 0 } else { self.recent.words[nth - 1] };
        self.whole &= nth < CALLS_MOST && end > before && end.is_multiple_of(size_of::<usize>());
        if !self.whole {
            return;
        }
        // SAFETY: in the stack, right below the frame. The first is read by the unwinder's own frame.
        self.whole = nth == 0 || unsafe { recent::read(word) } == address;
        self.recent.words[nth] = word;
        self.recent.addresses[nth] = address;
        self.recent.known = nth + 1;
    }
}

/// Whether the unwinder of a fully static program has come to all tables; sees to it once constructors run.
fn is_prepared() -> bool {
    type Find = unsafe extern "C" fn(*const c_void, *mut [usize; 3]) -> *const c_void;
    match STATE.compare_exchange(BEGUN, AWAY, Ordering::Acquire, Ordering::Acquire) {
        Ok(_) => {
            let find = weak!("_Unwind_Find_FDE");
            if !find.is_null() {
                // SAFETY: the function of this name in libgcc. At this address no code lies, so it looks at all tables.
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

/// As [`super::interface::Os::with_symbol`], by dladdr(3).
pub(super) fn with_symbol(address: usize, may_read: bool, work: &mut dyn FnMut(Option<Symbol>)) {
    type Look = unsafe extern "C" fn(*const c_void, *mut libc::Dl_info) -> c_int;
    let look = weak!("dladdr");
    if look.is_null() {
        return work(None);
    }
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the function of this name fills the struct; names that it finds stay while their file is loaded,
    // which has code on a stack.
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
            // In a fully static program it finds nothing.
            false if is_static() && is_of_program(address) => {
                let path = auxiliary::value(libc::AT_EXECFN);
                let path = text(ptr::with_exposed_provenance(path)).unwrap_or(c"?");
                (program_start(), path, None)
            }
            false => return work(None),
        }
    };
    // SAFETY: a file's header lies there, as long as it is.
    let (fixed, header) = unsafe {
        (is_fixed(base), (!base.is_null()).then(|| slice::from_raw_parts(base, HEADER_BYTES)))
    };
    let offset = if fixed { address } else { address - base.addr() };
    let module = path.to_bytes();
    let Some(header) = header.filter(|_| may_read && exported.is_none()) else {
        return work(Some(Symbol { module, offset, function: exported }));
    };
    // The program may have been started by a path that leads elsewhere by now.
    let path = if base == program_start() { c"/proc/self/exe" } else { path };
    symtab::with_name(path, header, offset, |function| {
        work(Some(Symbol { module, offset, function }));
    });
}

/// How a file of ELF begins.
const HEADER_BYTES: usize = 64;

/// Where the program was loaded: its headers lie in its first page.
fn program_start() -> *const u8 {
    let headers = auxiliary::value(libc::AT_PHDR);
    ptr::with_exposed_provenance(headers & !4095)
}

/// Whether code of the program lies at this address.
fn is_of_program(address: usize) -> bool {
    let start = program_start();
    // SAFETY: the kernel says where the headers are, and how many.
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

/// Whether a file was linked for the address that it is loaded at (ELF's type ET_EXEC).
///
/// # Safety
/// Its header lies there.
unsafe fn is_fixed(header: *const u8) -> bool {
    const TYPE_AT: usize = 16;
    const FIXED: u16 = 2;
    // SAFETY: the caller's.
    !header.is_null() && unsafe { header.add(TYPE_AT).cast::<u16>().read_unaligned() } == FIXED
}

#[cfg(all(test, not(any(miri, loom))))]
mod tests {
    use std::string::String;
    use std::vec::Vec;

    use super::*;

    #[inline(never)]
    fn caller(out: &mut [usize]) -> usize {
        let known = calls(out);
        // Not a tail call.
        std::hint::black_box(known)
    }

    #[test]
    fn the_caller_is_on_the_stack() {
        let mut out = [0; 32];
        let known = caller(&mut out);
        assert!(known >= 3, "{known}");
        let start = caller as *const () as usize;
        let within = |address: &usize| (start..start + 400).contains(address);
        assert!(out[..known].iter().any(within), "{start:#x} not in {:#x?}", &out[..known]);
        assert_eq!(caller(&mut out[..2]), 2);
    }

    /// File, offset and function.
    fn told(address: usize) -> Option<(String, usize, Option<String>)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut told = None;
        with_symbol(address, true, &mut |symbol| {
            told = symbol.map(|symbol| {
                (text(symbol.module), symbol.offset, symbol.function.map(|(name, _)| text(name)))
            });
        });
        told
    }

    /// The same stack is the same when it is read again, and one that differs in a call is not taken for it.
    #[test]
    fn a_stack_that_was_read_before_is_told_from_others() {
        // The same frames, from other places.
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
                let mut out = [0; CALLS_MOST];
                let known = function(&mut out) ^ number;
                assert!(known >= 3);
                stacks.push(out[..known].to_vec());
            }
        }
        assert!(stacks.iter().step_by(2).all(|stack| *stack == stacks[0]), "{stacks:x?}");
        assert!(stacks.iter().skip(1).step_by(2).all(|stack| *stack == stacks[1]));
        assert_ne!(stacks[0], stacks[1]);
    }

    #[test]
    fn the_file_of_an_address_is_known() {
        let (file, offset, function) = told(libc::malloc as *const () as usize).unwrap();
        assert!(offset > 0 && !file.is_empty() && function.is_some_and(|name| !name.is_empty()));
        let (file, _, function) = told(symbol_of_this_file as *const () as usize).unwrap();
        assert!(file.contains("ebbmalloc"), "{file}");
        assert!(function.is_some_and(|name| name.contains("symbol_of_this_file")));
        assert!(told(1).is_none());
    }

    #[inline(never)]
    fn symbol_of_this_file() {}
}
