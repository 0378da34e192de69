//! Finds the data of the C library and the code of its loader. Blocks that these still hold when a
//! process exits are no leaks of the program.

use super::c_library::CLibrary;
use super::dlsym::global_symbol;
use core::ffi::{CStr, c_int, c_void};
use core::mem;

use crate::platform::arch::weak;
use crate::platform::kernel::auxiliary;

type Iterate = unsafe extern "C" fn(
    unsafe extern "C" fn(*const libc::dl_phdr_info, usize, *mut c_void) -> c_int,
    *mut c_void,
) -> c_int;

/// Implements [`super::interface::OsReports::c_library`]. Takes locks of the loader.
pub(super) fn c_library() -> CLibrary {
    let mut found = CLibrary::UNKNOWN;
    if auxiliary::value(libc::AT_BASE) == 0 {
        // A fully static program: the C library's data lie among its own. Only the streams are
        // known.
        for stream in [weak!("stdin"), weak!("stdout"), weak!("stderr")] {
            // SAFETY: the address is null, or that of a pointer to a stream.
            let stream = unsafe { stream.cast::<*const u8>().as_ref() };
            stream.inspect(|stream| found.add(stream.addr(), STREAM_BYTES));
        }
        return found;
    }
    let iterate = weak!("dl_iterate_phdr");
    if !iterate.is_null() {
        // SAFETY: the address is that of dl_iterate_phdr(3), which calls `add_object` before it
        // returns.
        unsafe {
            let iterate = mem::transmute::<*const u8, Iterate>(iterate);
            iterate(add_object, (&raw mut found).cast());
        }
    }
    if let Some(bytes) = thread_bytes() {
        // SAFETY: pthread_self(3) has no conditions. In glibc it is the address of the descriptor.
        found.add(unsafe { libc::pthread_self() } as usize, bytes);
    }
    found
}

/// Bytes of glibc's descriptor of a thread, as glibc tells debuggers. It contains values of keys
/// and texts of errors.
fn thread_bytes() -> Option<usize> {
    let found = global_symbol(c"_thread_db_sizeof_pthread")?;
    // SAFETY: the address is that of the variable, which has 32 bits.
    let bytes = unsafe { found.cast::<u32>().read() } as usize;
    (bytes < 1 << 16).then_some(bytes)
}

/// Bytes of a stream to look at: fewer than any stream has, and the pointer to its buffer is among
/// them.
const STREAM_BYTES: usize = 128;

/// Adds the data of a loaded object, if it is part of the C library.
unsafe extern "C" fn add_object(
    info: *const libc::dl_phdr_info,
    bytes: usize,
    found: *mut c_void,
) -> c_int {
    // SAFETY: `found` is the `CLibrary` that `c_library` passed and does not use meanwhile. The
    // loader fills `info`.
    let (found, info) = unsafe { (&mut *found.cast::<CLibrary>(), &*info) };
    // SAFETY: the loader's name is a C string, and it has `dlpi_phnum` headers.
    let (name, headers) = unsafe {
        let name = if info.dlpi_name.is_null() { c"" } else { CStr::from_ptr(info.dlpi_name) };
        (name.to_bytes(), core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize))
    };
    let name = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
    let begins = |starts: &[&[u8]]| starts.iter().any(|start| name.starts_with(start));
    let is_loader = begins(&[b"ld-linux", b"ld64.so", b"ld.so", b"ld-2."]);
    // Before glibc 2.34, parts of it were libraries of their own; musl's loader is its C library.
    let is_libc =
        begins(&[b"libc.so", b"libc-2.", b"libpthread", b"libdl", b"ld-musl", b"libc.musl"]);
    let here = (c_library as *const ()).addr();
    for header in headers {
        let (start, length) = (info.dlpi_addr + header.p_vaddr, header.p_memsz);
        let (start, length) = (start as usize, length as usize);
        let range = start..start + length;
        match header.p_type {
            libc::PT_LOAD if header.p_flags & libc::PF_X != 0 => {
                if is_loader {
                    found.loader = range.clone();
                }
                if range.contains(&here) {
                    found.own = range;
                }
            }
            libc::PT_LOAD if header.p_flags & libc::PF_W != 0 && (is_loader || is_libc) => {
                found.add(start, length);
            }
            libc::PT_TLS
                if is_libc
                    && bytes >= size_of::<libc::dl_phdr_info>()
                    && !info.dlpi_tls_data.is_null() =>
            {
                found.add(info.dlpi_tls_data.addr(), length);
            }
            _ => {}
        }
    }
    0
}

#[cfg(all(test, not(any(miri, loom))))]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_has_data_and_streams_are_in_it() {
        let found = c_library();
        assert!(!found.data().is_empty() && !found.loader.is_empty(), "{found:?}");
        assert!(found.own.contains(&(c_library as *const ()).addr()));
        let stdout = weak!("stdout");
        // SAFETY: the C library of this test has the variable, a pointer to a stream.
        let stream = unsafe { *stdout.cast::<usize>() };
        let within = |&(start, bytes): &(usize, usize)| (start..start + bytes).contains(&stream);
        assert!(found.data().iter().any(within), "{stream:#x} {found:x?}");
    }
}
