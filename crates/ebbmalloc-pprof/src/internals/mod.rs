//! The parts that the command `ebb` uses too. They are outside of semantic versioning: any release
//! may change them.

pub mod data;
#[cfg(feature = "symbols")]
mod debug_files;
pub mod frame_names;
pub mod jit;
pub mod maps;
#[cfg(feature = "symbols")]
pub mod naming;
pub mod pprof;
#[cfg(feature = "symbols")]
mod symbols;
