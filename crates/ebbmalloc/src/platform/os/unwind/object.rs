//! Finds the program, library or other object to which code belongs, without a lock.
//!
//! glibc has a function for it since 2.35. With another C library, or in a fully static program,
//! this walks the list of loaded objects that the loader keeps for debuggers. The list may change
//! meanwhile, so the kernel looks at each page of it first.

use core::ffi::{c_int, c_void};
use core::marker::PhantomData;
use core::ops::Range;
use core::{mem, slice};

use super::memory::Memory;
use super::table::{Tables, identity};
use crate::platform::arch::weak;
use crate::platform::kernel::auxiliary::{self, program_start};
use crate::platform::sync::{AtomicU8, Ordering};

/// An object that is loaded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Object {
    pub range: Range<usize>,
    /// The address of its search table (section `.eh_frame_hdr`).
    pub header: usize,
    /// A number that most likely differs from those of objects that are loaded here later. 0 if the
    /// object was found by the list, where a number would cost too much.
    pub identity: u16,
}

/// Where to look for objects.
#[derive(Clone, Copy)]
pub(super) enum Source {
    Glibc(Find),
    List,
}

/// `_dl_find_object` of glibc. Takes no lock, and may be called by signal handlers.
pub(super) type Find = unsafe extern "C" fn(*const c_void, *mut Found) -> c_int;

/// glibc's `struct dl_find_object`.
#[repr(C)]
#[derive(Default)]
pub(super) struct Found {
    flags: u64,
    start: usize,
    end: usize,
    link_map: usize,
    header: usize,
    reserved: [u64; 7],
}

impl Source {
    /// The best source of this process.
    pub fn of_process() -> Self {
        let find = weak!("_dl_find_object");
        if find.is_null() || auxiliary::value(libc::AT_BASE) == 0 && is_static() {
            return Self::List;
        }
        // SAFETY: the address is that of the function of this name, which has this type.
        Self::Glibc(unsafe { mem::transmute::<*const u8, Find>(find) })
    }

    /// The object that contains an address of code.
    pub fn find(self, code: usize) -> Option<Object> {
        match self {
            Self::Glibc(find) => of_glibc(find, code),
            Self::List => of_list(code),
        }
    }
}

/// Whether the program is fully static: this code is part of it. There glibc's function allocates
/// memory as it is set up, and faults before. A loader that was started as a program, with the
/// program as its argument, is not static.
#[cold]
fn is_static() -> bool {
    /// 0 before the first call.
    static KNOWN: AtomicU8 = AtomicU8::new(0);
    const YES: u8 = 1;
    const NO: u8 = 2;
    if KNOWN.load(Ordering::Relaxed) == 0 {
        let code = (is_static as *const ()).addr();
        let headers = Headers::read(program_start(), &mut Memory::unknown());
        let is_own = headers.is_some_and(|headers| headers.contains(code));
        KNOWN.store(if is_own { YES } else { NO }, Ordering::Relaxed);
    }
    KNOWN.load(Ordering::Relaxed) == YES
}

fn of_glibc(find: Find, code: usize) -> Option<Object> {
    let mut found = Found::default();
    // SAFETY: the function takes any address, and fills the struct.
    let failed = unsafe { find(core::ptr::without_provenance(code), &mut found) } != 0;
    if failed || found.header == 0 {
        return None;
    }
    let range = found.start..found.end;
    let object = Object { range, header: found.header, identity: 0 };
    let mut numbers = [found.start, found.end, found.link_map, found.header, 0, 0, 0, 0];
    numbers[4..].copy_from_slice(&identity(&mut object.head(), found.header));
    let hash = numbers.iter().fold(0_u64, |hash, &number| {
        (hash.rotate_left(23) ^ number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    Some(Object { identity: (hash >> 48) as u16, ..object })
}

impl Object {
    /// Whether the range includes the tables. Where a program's segments lie apart, glibc tells
    /// only of the one with the code.
    pub fn has_tables(&self) -> bool {
        self.range.contains(&self.header)
    }

    /// Memory with the search table: all of the object, or the rest of the table's first page.
    fn head(&self) -> Mapped<'_> {
        let page = auxiliary::page_size();
        let range = match self.has_tables() {
            true => self.range.clone(),
            false => self.header..(self.header / page + 1).saturating_mul(page),
        };
        Mapped { range, probed: None, object: PhantomData }
    }

    /// The memory of the object. If the object may go away meanwhile, the kernel looks at each page
    /// first.
    pub fn tables(&self, is_probed: bool) -> Mapped<'_> {
        let probed = is_probed.then_some(Memory::unknown());
        Mapped { range: self.range.clone(), probed, object: PhantomData }
    }
}

/// The memory of a loaded object.
pub(super) struct Mapped<'a> {
    range: Range<usize>,
    probed: Option<Memory>,
    object: PhantomData<&'a Object>,
}

impl<'a> Tables<'a> for Mapped<'a> {
    fn bytes(&mut self, address: usize, count: usize) -> Option<&'a [u8]> {
        let end = address.checked_add(count)?;
        if address < self.range.start || end > self.range.end {
            return None;
        }
        if self.probed.as_mut().is_some_and(|memory| !memory.can_read(address..end)) {
            return None;
        }
        // SAFETY: the bytes are part of a loaded object, whose tables nothing writes. Code of the
        // object is on this thread's stack, so it stays loaded.
        Some(unsafe { slice::from_raw_parts(core::ptr::with_exposed_provenance(address), count) })
    }
}

/// The headers of an ELF file that is mapped.
struct Headers<'a> {
    /// What to add to addresses in the file.
    bias: usize,
    headers: &'a [libc::Elf64_Phdr],
}

impl Headers<'_> {
    /// Those of the file whose start is mapped at this address.
    fn read(start: usize, memory: &mut Memory) -> Option<Self> {
        // Everything that is read lies in the first page.
        const START_BYTES: usize = 4096;
        const MAGIC: u32 = u32::from_le_bytes(*b"\x7fELF");
        if start == 0 || !start.is_multiple_of(START_BYTES) {
            return None;
        }
        memory.word(start)?;
        let header = core::ptr::with_exposed_provenance::<libc::Elf64_Ehdr>(start);
        // SAFETY: the page is readable, and any bytes make a valid header.
        let header = unsafe { header.read() };
        let (at, count) = (header.e_phoff as usize, usize::from(header.e_phnum));
        let bytes = count * size_of::<libc::Elf64_Phdr>();
        if u32::from_le_bytes(header.e_ident[..4].try_into().ok()?) != MAGIC
            || usize::from(header.e_phentsize) != size_of::<libc::Elf64_Phdr>()
            || !at.is_multiple_of(align_of::<libc::Elf64_Phdr>())
            || at.checked_add(bytes)? > START_BYTES
        {
            return None;
        }
        let first = core::ptr::with_exposed_provenance(start + at);
        // SAFETY: the headers are aligned, and lie in the same readable page.
        let headers: &[libc::Elf64_Phdr] = unsafe { slice::from_raw_parts(first, count) };
        let mut parts = headers.iter().filter(|part| part.p_type == libc::PT_LOAD);
        let first = parts.find(|part| part.p_offset == 0)?;
        Some(Self { bias: start.wrapping_sub(first.p_vaddr as usize), headers })
    }

    fn range(&self, part: &libc::Elf64_Phdr) -> Range<usize> {
        let start = self.bias.wrapping_add(part.p_vaddr as usize);
        start..start.saturating_add(part.p_memsz as usize)
    }

    fn parts(&self, kind: u32) -> impl Iterator<Item = Range<usize>> {
        let parts = self.headers.iter().filter(move |part| part.p_type == kind);
        parts.map(|part| self.range(part))
    }

    fn contains(&self, code: usize) -> bool {
        self.parts(libc::PT_LOAD).any(|part| part.contains(&code))
    }

    /// The object, if it contains this address and has a search table.
    fn object(&self, code: usize) -> Option<Object> {
        let parts = || self.parts(libc::PT_LOAD);
        if !self.contains(code) {
            return None;
        }
        let start = parts().map(|part| part.start).min()?;
        let end = parts().map(|part| part.end).max()?;
        let header = self.parts(libc::PT_GNU_EH_FRAME).next()?.start;
        Some(Object { range: start..end, header, identity: 0 })
    }
}

/// The most objects in the list.
const OBJECTS_MAX: usize = 4096;

/// Finds an object in the program, in code that the kernel maps (vDSO), or in the loader's list.
fn of_list(code: usize) -> Option<Object> {
    let program = program_start();
    for start in [program, auxiliary::value(libc::AT_SYSINFO_EHDR)] {
        let headers = Headers::read(start, &mut Memory::unknown());
        if let Some(object) = headers.and_then(|headers| headers.object(code)) {
            return Some(object);
        }
    }
    let mut memory = Memory::unknown();
    let mut node = first_node(program, &mut memory)?;
    for _ in 0..OBJECTS_MAX {
        // struct link_map: the bias, the name, the dynamic section, the next node.
        let [start, next] = [memory.word(node)?, memory.word(node.checked_add(24)?)?];
        let headers = Headers::read(start, &mut Memory::unknown());
        if let Some(object) = headers.and_then(|headers| headers.object(code)) {
            return Some(object);
        }
        node = next;
    }
    None
}

/// The first node of the loader's list of objects. The program's dynamic section leads to it.
fn first_node(program: usize, memory: &mut Memory) -> Option<usize> {
    /// The kind of the entry that leads to the list (ELF's DT_DEBUG).
    const DEBUG: usize = 21;
    let headers = Headers::read(program, memory)?;
    let section = headers.parts(libc::PT_DYNAMIC).next()?;
    let mut entries = section.step_by(2 * size_of::<usize>());
    let entry = entries.find(|&entry| memory.word(entry) == Some(DEBUG))?;
    // struct r_debug: the version, the first node.
    let debug = memory.word(entry + size_of::<usize>())?;
    memory.word(debug.checked_add(size_of::<usize>())?)
}

#[cfg(all(test, not(any(miri, loom))))]
mod tests {
    use super::*;

    /// The list leads to the same objects as the C library's function.
    #[test]
    fn both_sources_agree() {
        let source = Source::of_process();
        let clock = auxiliary::value(libc::AT_SYSINFO_EHDR) + 64;
        // qemu maps no such code.
        let codes = [
            both_sources_agree as *const () as usize,
            libc::qsort as *const () as usize,
            libc::dlopen as *const () as usize,
            clock,
        ];
        for code in codes.into_iter().filter(|&code| code > 4096) {
            let [object, listed] = [source, Source::List].map(|source| source.find(code));
            // The code that the kernel maps may have no table, as for AArch64.
            if code == clock && object.is_none() {
                assert!(cfg!(target_arch = "aarch64") && listed.is_none());
                continue;
            }
            let (object, listed) = (object.unwrap(), listed.unwrap());
            assert!(listed.range.contains(&code) && object.range.contains(&code));
            assert_eq!(object.header, listed.header);
        }
        let local = 0;
        for code in [0, 1, (&raw const local).addr(), usize::MAX] {
            assert_eq!((source.find(code), Source::List.find(code)), (None, None));
        }
    }
}
