//! Makes a profile without names of functions: its readers find them.

use std::collections::HashMap;

use crate::internals::data::{Location, Profile, Raw, Stack};
use crate::internals::frame_names::allocators_pattern;
use crate::internals::maps::{self, Mapping};

/// The profile, by address.
pub fn profile(raw: Raw) -> Profile {
    let mut locations = Vec::new();
    let mut ids = HashMap::new();
    let mut location = |address| {
        *ids.entry(address).or_insert_with(|| {
            let image = maps::find(&raw.mappings, address);
            locations.push(Location { address, image, lines: Vec::new() });
            locations.len() - 1
        })
    };
    let stacks = raw.stacks.iter().map(|stack| Stack {
        locations: stack.calls.iter().map(|&call| location(call)).collect(),
        values: stack.values,
    });
    let stacks = stacks.collect();
    Profile {
        about: raw.about,
        images: raw.mappings.iter().map(Mapping::image).collect(),
        locations,
        stacks,
        drop_frames: allocators_pattern(),
        ..Profile::default()
    }
}
