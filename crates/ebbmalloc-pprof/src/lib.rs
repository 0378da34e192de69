#![doc = include_str!("../README.md")]

mod by_address;
#[doc(hidden)]
pub mod internals;
mod own;

use internals::data::Profile;
#[cfg(feature = "symbols")]
use internals::naming;
use internals::pprof;

/// What `/debug/pprof/symbol` answers where functions are not named in the process. pprof asks
/// there about libraries in which it found no functions, and fails without an answer.
pub const NO_SYMBOLS: &str = "num_symbols: 0\n";

/// The heap profile of this process at one moment.
#[derive(Clone, Debug)]
pub struct HeapProfile {
    profile: Profile,
}

impl HeapProfile {
    /// Reads the profile, or the last one if it is off; `None` if there never was one
    /// ([`ebbmalloc::profile::start`]). Functions are addresses: `go tool pprof` and others name
    /// them, by the files with these build IDs.
    pub fn take() -> Option<Self> {
        own::read().map(|raw| Self { profile: by_address::profile(raw) })
    }

    /// As [`HeapProfile::take`], with functions, files and lines. They are read from the program's
    /// files each time: for a large program with debug information, that takes seconds and memory.
    #[cfg(feature = "symbols")]
    pub fn take_with_symbols() -> Option<Self> {
        own::read().map(|raw| Self { profile: naming::name(raw, &[]) })
    }

    /// The file for `/debug/pprof/heap`: it first shows the bytes in use.
    pub fn heap(&self) -> Vec<u8> {
        self.file(pprof::INUSE_SPACE)
    }

    /// The file for `/debug/pprof/allocs`: it first shows the bytes that were allocated since the
    /// profile was switched on.
    pub fn allocs(&self) -> Vec<u8> {
        self.file(pprof::ALLOC_SPACE)
    }

    fn file(&self, first: &str) -> Vec<u8> {
        pprof::write(&self.profile, None, first).expect("writing to memory does not fail")
    }
}
