//! The data of a heap profile: as it was read ([`Raw`]), and with names for its addresses
//! ([`Profile`]).

use std::ops::AddAssign;

use super::jit::JitMap;
use super::maps::Mapping;

/// Objects and bytes, estimated from samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    pub objects: f64,
    pub bytes: f64,
}

/// What a stack allocated since profiling began, and what of it is live.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Values {
    pub live: Counts,
    pub allocated: Counts,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.objects += other.objects;
        self.bytes += other.bytes;
    }
}

impl AddAssign for Values {
    fn add_assign(&mut self, other: Self) {
        self.live += other.live;
        self.allocated += other.allocated;
    }
}

/// The facts about a profile as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct About {
    pub program: String,
    pub pid: Option<i32>,
    /// The moment that it shows: "at its peak", "at its end". Empty for a running process.
    pub moment: String,
    /// The mean number of bytes from one sample to the next.
    pub mean_bytes: u64,
    /// Since 1970, in nanoseconds; 0 if unknown.
    pub time_nanos: i64,
    /// Since profiling began, in nanoseconds; 0 if unknown.
    pub duration_nanos: i64,
    /// Stacks and samples that did not fit into the engine's tables.
    pub dropped_stacks: u64,
    pub dropped_samples: u64,
}

/// A stack of calls by address.
#[derive(Clone, Debug, PartialEq)]
pub struct RawStack {
    /// Addresses within the call instructions, innermost first.
    pub calls: Vec<u64>,
    pub values: Values,
}

/// A profile as it was read.
#[derive(Debug, Default)]
pub struct Raw {
    pub about: About,
    pub stacks: Vec<RawStack>,
    /// In the order of addresses.
    pub mappings: Vec<Mapping>,
    pub jit: JitMap,
}

/// A mapped file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Image {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub path: String,
    /// In hexadecimal digits; empty if unknown.
    pub build_id: String,
    pub has_functions: bool,
    pub has_lines: bool,
}

/// A function, or an address in a file without symbols.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Function {
    pub name: String,
    /// The name in the symbol table, before demangling.
    pub system_name: String,
    pub file: String,
}

/// A line of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Line {
    /// Index into [`Profile::functions`].
    pub function: usize,
    /// 0 if unknown.
    pub line: u32,
}

/// A place in the code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Location {
    pub address: u64,
    /// Index into [`Profile::images`].
    pub image: Option<usize>,
    /// The innermost inlined function first. Empty if functions were not looked for.
    pub lines: Vec<Line>,
}

/// A stack of calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Stack {
    /// Indexes into [`Profile::locations`], innermost first.
    pub locations: Vec<usize>,
    pub values: Values,
}

/// A profile to show, mostly with names.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    pub about: About,
    pub images: Vec<Image>,
    pub functions: Vec<Function>,
    pub locations: Vec<Location>,
    pub stacks: Vec<Stack>,
    /// The functions that readers leave out, with what they call: a regular expression. Empty if
    /// they are left out already.
    pub drop_frames: String,
    /// What the reader should know, such as files without symbols.
    pub remarks: Vec<String>,
}

impl Profile {
    /// The lines of a stack, innermost first.
    pub fn lines<'a>(&'a self, stack: &'a Stack) -> impl Iterator<Item = Line> + 'a {
        stack.locations.iter().flat_map(|&location| self.locations[location].lines.iter().copied())
    }
}
