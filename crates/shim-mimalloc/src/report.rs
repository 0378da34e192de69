//! Reports statistics, and calls the program when memory is refused.

use core::ffi::{c_char, c_int, c_void};
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use shim::figures;

use crate::export;

type Output = Option<unsafe extern "C" fn(*const c_char, *mut c_void)>;
type OnError = Option<unsafe extern "C" fn(c_int, *mut c_void)>;

/// A function of the program with its argument; null for none.
struct Registered {
    call: AtomicPtr<()>,
    argument: AtomicPtr<c_void>,
}

impl Registered {
    const fn new() -> Self {
        Self { call: AtomicPtr::new(ptr::null_mut()), argument: AtomicPtr::new(ptr::null_mut()) }
    }

    fn set(&self, call: *mut (), argument: *mut c_void) {
        self.argument.store(argument, Ordering::Relaxed);
        self.call.store(call, Ordering::Release);
    }

    fn get(&self) -> (*mut (), *mut c_void) {
        (self.call.load(Ordering::Acquire), self.argument.load(Ordering::Relaxed))
    }
}

static OUTPUT: Registered = Registered::new();
static ERROR: Registered = Registered::new();

extern "C" fn refused(_bytes: usize) {
    let (call, argument) = ERROR.get();
    // SAFETY: `mi_register_error` stored a function of this type, or null.
    let call = unsafe { mem::transmute::<*mut (), OnError>(call) };
    if let Some(call) = call {
        // SAFETY: the program registered it for such calls.
        unsafe { call(libc::ENOMEM, argument) }
    }
}

fn print(out: Output, argument: *mut c_void) {
    let (out, argument) = match out {
        None => {
            let (call, argument) = OUTPUT.get();
            // SAFETY: `mi_register_output` stored a function of this type, or null.
            (unsafe { mem::transmute::<*mut (), Output>(call) }, argument)
        }
        given => (given, argument),
    };
    figures::print(false, |text| match out {
        // SAFETY: the program gave it for texts with a zero byte at the end.
        Some(out) => unsafe { out(text.as_ptr().cast(), argument) },
        // SAFETY: a call of the C library.
        None => unsafe {
            libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
        },
    });
}

// SAFETY of all calls below: the caller's pointers are null, or valid for writes.

export! {
    /// Has statistics go to this function.
    fn mi_register_output = (out: Output, argument: *mut c_void) -> () {
        OUTPUT.set(out.map_or(ptr::null_mut(), |out| out as *mut ()), argument);
    }

    /// Has this function called with ENOMEM when memory is refused. Other errors end the program.
    fn mi_register_error = (call: OnError, argument: *mut c_void) -> () {
        ERROR.set(call.map_or(ptr::null_mut(), |call| call as *mut ()), argument);
        unsafe { shim::ebb_on_refusal(call.is_some().then_some(refused)) }
    }

    /// Prints ebbmalloc's statistics. They are those of the process.
    fn mi_stats_print = (_out: *mut c_void) -> () {
        print(None, ptr::null_mut());
    }

    fn mi_stats_print_out | mi_thread_stats_print_out = (
        out: Output, argument: *mut c_void
    ) -> () {
        print(out, argument);
    }

    /// Does nothing: statistics of threads need no merging, and those of the process count from its
    /// start.
    fn mi_stats_merge | mi_stats_reset = () -> () {}

    /// Writes statistics as JSON into the buffer, or into a block. Null if it does not fit.
    fn mi_stats_get_json = (bytes: usize, buffer: *mut c_char) -> *mut c_char {
        let mut written = ptr::null_mut();
        figures::print(true, |text| unsafe {
            let to = match buffer.is_null() {
                true => shim::ebb_malloc(text.len() + 1).cast(),
                false if text.len() < bytes => buffer,
                false => ptr::null_mut(),
            };
            if !to.is_null() {
                to.copy_from_nonoverlapping(text.as_ptr().cast(), text.len());
                to.add(text.len()).write(0);
            }
            written = to;
        });
        written
    }

    /// Stores times, memory and page faults of the process. The peak of what is committed is not
    /// known: 0.
    fn mi_process_info = (
        elapsed_ms: *mut usize,
        user_ms: *mut usize,
        system_ms: *mut usize,
        resident: *mut usize,
        peak_resident: *mut usize,
        committed: *mut usize,
        peak_committed: *mut usize,
        page_faults: *mut usize
    ) -> () {
        const NAMES: [&str; 7] = [
            "elapsed_us",
            "user_us",
            "system_us",
            "resident_bytes",
            "peak_resident_bytes",
            "held_bytes",
            "major_faults",
        ];
        let [elapsed, user, system, now, peak, held, faults] = figures::read(NAMES);
        let values = [
            (elapsed_ms, elapsed / 1000),
            (user_ms, user / 1000),
            (system_ms, system / 1000),
            (resident, now),
            (peak_resident, peak),
            (committed, held),
            (peak_committed, 0),
            (page_faults, faults),
        ];
        for (to, value) in values {
            if !to.is_null() {
                unsafe { to.write(value as usize) }
            }
        }
    }
}
