//! Reads pprof's files, also those that others wrote: `profile.proto`, compressed by gzip.

use std::collections::HashMap;
use std::io::Read;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use ebbmalloc_pprof::internals::jit::JitMap;
use ebbmalloc_pprof::internals::maps::{Head, Mapping};
use ebbmalloc_pprof::internals::naming;
use ebbmalloc_pprof::internals::pprof::{
    DROPPED_SAMPLES, DROPPED_STACKS, MOMENT, PID, PROGRAM, TYPES, proto,
};
pub use ebbmalloc_pprof::internals::pprof::{INUSE_SPACE, write};
use flate2::read::MultiGzDecoder;
use prost::Message;

use super::data::{
    About, Counts, Function, Image, Line, Location, Profile, Raw, RawStack, Stack, Values,
};
use super::text_file::bytes;

/// The first bytes of a file that is compressed by gzip.
pub const BEGINNING: &[u8] = &[0x1f, 0x8b];
/// A larger profile, unpacked, is taken for a damaged file.
const UNPACKED_BYTES_MAX: u64 = 1 << 30;

/// Reads a file. `folders` are searched for symbols, if the file has addresses only.
pub fn read(content: &[u8], folders: &[PathBuf]) -> Result<Profile> {
    let mut bytes = Vec::new();
    MultiGzDecoder::new(content)
        .take(UNPACKED_BYTES_MAX)
        .read_to_end(&mut bytes)
        .context("it is not whole: gzip cannot unpack it")?;
    let message = proto::Profile::decode(bytes.as_slice()).context("it is no pprof file")?;
    let text = |id: i64| {
        let text = usize::try_from(id).ok().and_then(|id| message.string_table.get(id));
        text.cloned().unwrap_or_default()
    };
    let place = |kind: &str| {
        message.sample_type.iter().position(|value_type| text(value_type.r#type) == kind)
    };
    let places = TYPES.map(|(kind, _)| place(kind));
    if places[3].is_none() {
        bail!("it is no heap profile: it has no values of the type inuse_space");
    }
    let mut about = About {
        mean_bytes: u64::try_from(message.period).unwrap_or(0),
        time_nanos: message.time_nanos,
        duration_nanos: message.duration_nanos,
        ..About::default()
    };
    for comment in message.comment.iter().map(|&id| text(id)) {
        let value = |name: &str| comment.strip_prefix(name);
        if let Some(program) = value(PROGRAM) {
            about.program = program.into();
        } else if let Some(pid) = value(PID) {
            about.pid = pid.parse().ok();
        } else if let Some(moment) = value(MOMENT) {
            about.moment = moment.into();
        } else if let Some(number) = value(DROPPED_STACKS) {
            about.dropped_stacks = number.parse().unwrap_or(0);
        } else if let Some(number) = value(DROPPED_SAMPLES) {
            about.dropped_samples = number.parse().unwrap_or(0);
        }
    }
    let ids = |ids: &mut dyn Iterator<Item = u64>| -> HashMap<u64, usize> {
        ids.enumerate().map(|(place, id)| (id, place)).collect()
    };
    let image_ids = ids(&mut message.mapping.iter().map(|mapping| mapping.id));
    let function_ids = ids(&mut message.function.iter().map(|function| function.id));
    let location_ids = ids(&mut message.location.iter().map(|location| location.id));
    let images = message.mapping.iter().map(|mapping| Image {
        start: mapping.memory_start,
        end: mapping.memory_limit,
        offset: mapping.file_offset,
        path: text(mapping.filename),
        build_id: text(mapping.build_id),
        has_functions: mapping.has_functions,
        has_lines: mapping.has_line_numbers,
    });
    let mut functions: Vec<Function> = message
        .function
        .iter()
        .map(|function| Function {
            name: text(function.name),
            system_name: text(function.system_name),
            file: text(function.filename),
        })
        .collect();
    let mut locations = Vec::new();
    for location in &message.location {
        let known = location.line.iter().filter_map(|line| {
            let function = *function_ids.get(&line.function_id)?;
            Some(Line { function, line: u32::try_from(line.line).unwrap_or(0) })
        });
        let mut lines: Vec<_> = known.collect();
        if lines.is_empty() {
            let name = format!("{:#x}", location.address);
            functions.push(Function { name, ..Function::default() });
            lines.push(Line { function: functions.len() - 1, line: 0 });
        }
        let image = image_ids.get(&location.mapping_id).copied();
        locations.push(Location { address: location.address, image, lines });
    }
    let stacks = message.sample.iter().map(|sample| {
        let value = |place: Option<usize>| {
            place.and_then(|place| sample.value.get(place)).map_or(0.0, |&value| value as f64)
        };
        let [objects, bytes, live_objects, live_bytes] = places.map(value);
        let known = sample.location_id.iter().filter_map(|id| location_ids.get(id).copied());
        Stack {
            locations: known.collect(),
            values: Values {
                live: Counts { objects: live_objects, bytes: live_bytes },
                allocated: Counts { objects, bytes },
            },
        }
    });
    let profile = Profile {
        about,
        images: images.collect(),
        stacks: stacks.collect(),
        functions,
        locations,
        drop_frames: text(message.drop_frames),
        remarks: Vec::new(),
    };
    match message.function.is_empty() {
        true => Ok(naming::name(raw(&profile), folders)),
        false => Ok(profile),
    }
}

/// A profile as its process saw it, by addresses.
fn raw(profile: &Profile) -> Raw {
    let mapping = |image: &Image| Mapping {
        range: image.start..image.end,
        offset: image.offset,
        path: image.path.clone(),
        is_executable: true,
        head: Head {
            build_id: bytes(&image.build_id).filter(|id| !id.is_empty()),
            ..Head::default()
        },
        ..Mapping::default()
    };
    let mut mappings: Vec<_> = profile.images.iter().map(mapping).collect();
    mappings.sort_by_key(|mapping| mapping.range.start);
    let stack = |stack: &Stack| RawStack {
        calls: stack.locations.iter().map(|&id| profile.locations[id].address).collect(),
        values: stack.values,
    };
    let stacks = profile.stacks.iter().map(stack).collect();
    let about = profile.about.clone();
    let jit = about.pid.map(JitMap::left_by).unwrap_or_default();
    Raw { about, stacks, mappings, jit }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;

    use ebbmalloc_pprof::internals::maps;

    use super::*;
    use crate::profile::example;

    #[test]
    fn what_is_written_is_read() {
        let profile = example::profile();
        let read = read(&write(&profile, None, INUSE_SPACE).unwrap(), &[]).unwrap();
        assert_eq!(read.about, profile.about);
        assert_eq!(read.images, profile.images);
        assert_eq!(read.functions, profile.functions);
        assert_eq!(read.locations, profile.locations);
        assert_eq!(read.stacks, profile.stacks);
    }

    /// A file of addresses, as `ebbmalloc-pprof` makes it.
    #[test]
    fn addresses_get_names() {
        let address = addresses_get_names as fn() as usize as u64 + 1;
        let mappings = maps::of_process(std::process::id() as i32, |_, _| false);
        let image = maps::find(&mappings, address);
        let profile = Profile {
            images: mappings.iter().map(Mapping::image).collect(),
            locations: vec![Location { address, image, lines: Vec::new() }],
            stacks: vec![Stack { locations: vec![0], ..example::profile().stacks.remove(0) }],
            ..Profile::default()
        };
        let read = read(&write(&profile, None, INUSE_SPACE).unwrap(), &[]).unwrap();
        let [stack] = &read.stacks[..] else { panic!("{:?}", read.stacks) };
        assert_eq!(stack.values, profile.stacks[0].values);
        let names: Vec<_> = read.functions.iter().map(|function| &function.name).collect();
        assert!(names.iter().any(|name| name.contains("addresses_get_names")), "{names:?}");
    }

    #[test]
    fn a_difference_has_the_earlier_samples_with_negative_values() {
        let (old, new) = (example::earlier(), example::profile());
        let difference = read(&write(&new, Some(&old), INUSE_SPACE).unwrap(), &[]).unwrap();
        let sum = |profile: &Profile| -> f64 {
            profile.stacks.iter().map(|stack| stack.values.live.bytes).sum()
        };
        assert_eq!(sum(&difference), sum(&new) - sum(&old));
        assert!(difference.stacks.iter().any(|stack| stack.values.live.bytes < 0.0));
    }

    #[test]
    fn other_files_are_refused() {
        let packed = |content: &[u8]| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(content).unwrap();
            encoder.finish().unwrap()
        };
        for (content, words) in [
            (vec![], "gzip"),
            (b"\x1f\x8b\x08".to_vec(), "gzip"),
            (packed(b"hello, this is text"), "no pprof file"),
            (packed(b""), "no heap profile"),
        ] {
            let error = format!("{:#}", read(&content, &[]).unwrap_err());
            assert!(error.contains(words), "{content:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn damaged_messages_are_read_or_refused(at in 0usize..4000, byte in any::<u8>()) {
            let mut bytes = Vec::new();
            let whole = write(&example::profile(), None, INUSE_SPACE).unwrap();
            MultiGzDecoder::new(whole.as_slice()).read_to_end(&mut bytes).unwrap();
            let at = at % bytes.len();
            bytes[at] = byte;
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(&bytes).unwrap();
            if let Ok(profile) = read(&encoder.finish().unwrap(), &[]) {
                let _ = crate::profile::view::View::of(profile);
            }
        }
    }
}
