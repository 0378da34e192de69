//! The data of a heap profile (`ebbmalloc-pprof` has its types), beside the ledger of its process.

use std::path::PathBuf;

pub use ebbmalloc_pprof::internals::data::{
    About, Counts, Function, Image, Line, Location, Profile, Raw, RawStack, Stack, Values,
};
use ebbmalloc_pprof::internals::naming;

use crate::why::report::Report;

/// A profile, and where the process's resident memory was at that moment.
#[derive(Clone, Debug, Default)]
pub struct WithLedger<T> {
    pub profile: T,
    pub ledger: Option<Report>,
}

impl<T> From<T> for WithLedger<T> {
    fn from(profile: T) -> Self {
        Self { profile, ledger: None }
    }
}

impl WithLedger<Raw> {
    /// Names all addresses. `folders` are searched for symbols.
    pub fn name(self, folders: &[PathBuf]) -> WithLedger<Profile> {
        WithLedger { profile: naming::name(self.profile, folders), ledger: self.ledger }
    }
}
