//! Gives names to the addresses of a profile, and leaves out the allocator's own calls.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem;
use std::path::{Path, PathBuf};

use super::data::{Function, Image, Line, Location, Profile, Raw, Stack, Values};
use super::frame_names::is_allocator;
use super::maps::{self, Mapping, hexadecimal};
use super::symbols::Symbols;

/// Files without symbols are named if their share of the live bytes is at least this.
const WORTH: f64 = 0.05;
/// At most this many of them are named.
const NAMED: usize = 3;
/// The beginning of the name of the library whose functions all belong to the allocator.
const LIBRARY: &str = "libebbmalloc";

/// Names all addresses. `folders` are searched for symbols.
pub fn name(raw: Raw, folders: &[PathBuf]) -> Profile {
    let mut namer = Namer {
        raw: &raw,
        folders,
        symbols: HashMap::new(),
        images: raw.mappings.iter().map(Mapping::image).collect(),
        functions: Vec::new(),
        function_ids: HashMap::new(),
        locations: Vec::new(),
        location_ids: HashMap::new(),
        by_address: HashMap::new(),
        nameless: HashMap::new(),
    };
    let mut stacks: Vec<Stack> = Vec::new();
    let mut stack_ids: HashMap<Vec<usize>, usize> = HashMap::new();
    for stack in &raw.stacks {
        let locations = namer.stack(&stack.calls, &stack.values);
        // Stacks may differ only within the allocator.
        match stack_ids.entry(locations) {
            Entry::Occupied(known) => stacks[*known.get()].values += stack.values,
            Entry::Vacant(new) => {
                let locations = new.key().clone();
                new.insert(stacks.len());
                stacks.push(Stack { locations, values: stack.values });
            }
        }
    }
    let remarks = namer.remarks();
    let profile = Profile {
        about: raw.about.clone(),
        images: mem::take(&mut namer.images),
        functions: mem::take(&mut namer.functions),
        locations: mem::take(&mut namer.locations),
        stacks,
        drop_frames: String::new(),
        remarks,
    };
    without_unused(profile)
}

/// Takes out locations and functions that no stack has.
fn without_unused(profile: Profile) -> Profile {
    let (mut locations, mut location_ids) = (Vec::new(), HashMap::new());
    let (mut functions, mut function_ids) = (Vec::new(), HashMap::new());
    let mut stacks = profile.stacks;
    for id in stacks.iter_mut().flat_map(|stack| &mut stack.locations) {
        *id = *location_ids.entry(*id).or_insert_with_key(|id: &usize| {
            let mut location = profile.locations[*id].clone();
            for line in &mut location.lines {
                let known = function_ids.entry(line.function);
                line.function = *known.or_insert_with_key(|id: &usize| {
                    functions.push(profile.functions[*id].clone());
                    functions.len() - 1
                });
            }
            locations.push(location);
            locations.len() - 1
        });
    }
    Profile { functions, locations, stacks, ..profile }
}

struct Namer<'a> {
    raw: &'a Raw,
    folders: &'a [PathBuf],
    /// By inode and path: a file may be mapped in several parts.
    symbols: HashMap<(u64, &'a str), Symbols>,
    images: Vec<Image>,
    functions: Vec<Function>,
    function_ids: HashMap<Function, usize>,
    locations: Vec<Location>,
    location_ids: HashMap<Location, usize>,
    /// Location and number of its innermost lines that belong to the allocator.
    by_address: HashMap<u64, (usize, usize)>,
    /// Live bytes of stacks through a file without symbols, by image.
    nameless: HashMap<usize, f64>,
}

impl<'a> Namer<'a> {
    /// The locations of a stack, less the innermost ones that belong to the allocator.
    fn stack(&mut self, calls: &[u64], values: &Values) -> Vec<usize> {
        let mut locations = Vec::new();
        let mut is_inside = true;
        let mut nameless = Vec::new();
        for &call in calls {
            let (location, allocators) = self.location(call);
            let lines = self.locations[location].lines.len();
            let left_out = if is_inside { allocators } else { 0 };
            is_inside &= allocators == lines;
            if left_out < lines {
                locations.push(self.without(location, left_out));
            }
            if let Some(image) = self.locations[location].image
                && !self.images[image].has_functions
            {
                nameless.push(image);
            }
        }
        nameless.sort_unstable();
        nameless.dedup();
        for image in nameless {
            *self.nameless.entry(image).or_default() += values.live.bytes;
        }
        if locations.is_empty() {
            locations.extend(calls.iter().map(|&call| self.location(call).0));
        }
        locations
    }

    /// A location less its innermost lines.
    fn without(&mut self, location: usize, left_out: usize) -> usize {
        if left_out == 0 {
            return location;
        }
        let whole = &self.locations[location];
        let rest = Location { lines: whole.lines[left_out..].to_vec(), ..whole.clone() };
        self.location_id(rest)
    }

    fn location_id(&mut self, location: Location) -> usize {
        *self.location_ids.entry(location).or_insert_with_key(|location| {
            self.locations.push(location.clone());
            self.locations.len() - 1
        })
    }

    fn function_id(&mut self, function: Function) -> usize {
        *self.function_ids.entry(function).or_insert_with_key(|function| {
            self.functions.push(function.clone());
            self.functions.len() - 1
        })
    }

    fn location(&mut self, address: u64) -> (usize, usize) {
        if let Some(&known) = self.by_address.get(&address) {
            return known;
        }
        let raw = self.raw;
        let image = maps::find(&raw.mappings, address);
        let found = match image.filter(|&index| raw.mappings[index].is_file()) {
            Some(image) => self.in_file(address, image),
            None => {
                let name = raw.jit.name(address).map(str::to_owned);
                let name = name.unwrap_or_else(|| match image {
                    Some(image) if !raw.mappings[image].path.is_empty() => {
                        raw.mappings[image].path.clone()
                    }
                    _ => format!("{address:#x}"),
                });
                if let Some(image) = image {
                    self.images[image].has_functions = true;
                }
                vec![(Function { system_name: name.clone(), name, ..Function::default() }, 0)]
            }
        };
        let is_library =
            image.is_some_and(|image| base(&raw.mappings[image].path).starts_with(LIBRARY));
        let allocators = match is_library {
            true => found.len(),
            false => found
                .iter()
                .take_while(|(function, _)| is_allocator(&function.name, &function.file))
                .count(),
        };
        let lines = found
            .into_iter()
            .map(|(function, line)| Line { function: self.function_id(function), line })
            .collect();
        let id = self.location_id(Location { address, image, lines });
        self.by_address.insert(address, (id, allocators));
        (id, allocators)
    }

    /// The functions at an address in a mapped file, or the address as its only function.
    fn in_file(&mut self, address: u64, image: usize) -> Vec<(Function, u32)> {
        let mapping = &self.raw.mappings[image];
        let symbols = self
            .symbols
            .entry((mapping.inode, &mapping.path))
            .or_insert_with(|| Symbols::open(mapping, self.folders));
        let linked = symbols.linked_address(mapping, address);
        let found = symbols.find(linked);
        let own = &mut self.images[image];
        own.has_lines |= found.iter().any(|(_, line)| *line > 0);
        own.has_functions |= !found.is_empty();
        if own.build_id.is_empty() {
            own.build_id = symbols.build_id.as_deref().map(hexadecimal).unwrap_or_default();
        }
        if !found.is_empty() {
            return found;
        }
        let name = format!("{}+{linked:#x}", base(&mapping.path));
        vec![(Function { system_name: name.clone(), name, ..Function::default() }, 0)]
    }

    fn remarks(&self) -> Vec<String> {
        let live: f64 = self.raw.stacks.iter().map(|stack| stack.values.live.bytes).sum();
        let mut files: Vec<(&usize, &f64)> = self
            .nameless
            .iter()
            .filter(|&(&image, &bytes)| !self.images[image].has_functions && bytes >= WORTH * live)
            .collect();
        files.sort_by(|one, other| other.1.total_cmp(one.1).then(one.0.cmp(other.0)));
        files.truncate(NAMED);
        let remark = |(&image, _): (&usize, &f64)| {
            let Image { path, build_id, .. } = &self.images[image];
            let mapping = &self.raw.mappings[image];
            let trouble = self.symbols.get(&(mapping.inode, mapping.path.as_str()));
            let trouble = trouble.and_then(|symbols| symbols.trouble).unwrap_or("has no symbols");
            let build_id = match build_id.as_str() {
                "" => String::new(),
                digits => format!(" (build ID {digits})"),
            };
            format!("{path}{build_id} {trouble}: --symbols DIR names a folder with debug files")
        };
        files.into_iter().map(remark).collect()
    }
}

fn base(path: &str) -> &str {
    Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or(path)
}
