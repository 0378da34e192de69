//! Writes and reads pprof's files: `profile.proto`, compressed by gzip.

use std::collections::HashMap;
use std::io::{Read, Write};

use anyhow::{Context, Result, bail};
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use prost::Message;

use super::data::{About, Counts, Function, Image, Line, Location, Profile, Stack, Values};

/// The first bytes of a file that is compressed by gzip.
pub const BEGINNING: &[u8] = &[0x1f, 0x8b];
/// A larger profile, unpacked, is taken for a damaged file.
const UNPACKED_BYTES_MAX: u64 = 1 << 30;
/// The types of a sample's values, in the order of Go's heap profiles.
const TYPES: [(&str, &str); 4] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
];
/// The beginnings of comments that `ebb` writes and reads.
const PROGRAM: &str = "program: ";
const PID: &str = "pid: ";
const MOMENT: &str = "moment: ";
const DROPPED_STACKS: &str = "dropped stacks: ";
const DROPPED_SAMPLES: &str = "dropped samples: ";

/// The messages of `profile.proto`, as far as heap profiles use them.
mod proto {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Profile {
        #[prost(message, repeated, tag = "1")]
        pub sample_type: Vec<ValueType>,
        #[prost(message, repeated, tag = "2")]
        pub sample: Vec<Sample>,
        #[prost(message, repeated, tag = "3")]
        pub mapping: Vec<Mapping>,
        #[prost(message, repeated, tag = "4")]
        pub location: Vec<Location>,
        #[prost(message, repeated, tag = "5")]
        pub function: Vec<Function>,
        #[prost(string, repeated, tag = "6")]
        pub string_table: Vec<String>,
        #[prost(int64, tag = "9")]
        pub time_nanos: i64,
        #[prost(int64, tag = "10")]
        pub duration_nanos: i64,
        #[prost(message, optional, tag = "11")]
        pub period_type: Option<ValueType>,
        #[prost(int64, tag = "12")]
        pub period: i64,
        #[prost(int64, repeated, tag = "13")]
        pub comment: Vec<i64>,
        #[prost(int64, tag = "14")]
        pub default_sample_type: i64,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct ValueType {
        #[prost(int64, tag = "1")]
        pub r#type: i64,
        #[prost(int64, tag = "2")]
        pub unit: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Sample {
        #[prost(uint64, repeated, tag = "1")]
        pub location_id: Vec<u64>,
        #[prost(int64, repeated, tag = "2")]
        pub value: Vec<i64>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Mapping {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(uint64, tag = "2")]
        pub memory_start: u64,
        #[prost(uint64, tag = "3")]
        pub memory_limit: u64,
        #[prost(uint64, tag = "4")]
        pub file_offset: u64,
        #[prost(int64, tag = "5")]
        pub filename: i64,
        #[prost(int64, tag = "6")]
        pub build_id: i64,
        #[prost(bool, tag = "7")]
        pub has_functions: bool,
        #[prost(bool, tag = "8")]
        pub has_filenames: bool,
        #[prost(bool, tag = "9")]
        pub has_line_numbers: bool,
        #[prost(bool, tag = "10")]
        pub has_inline_frames: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Location {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(uint64, tag = "2")]
        pub mapping_id: u64,
        #[prost(uint64, tag = "3")]
        pub address: u64,
        #[prost(message, repeated, tag = "4")]
        pub line: Vec<Line>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct Line {
        #[prost(uint64, tag = "1")]
        pub function_id: u64,
        #[prost(int64, tag = "2")]
        pub line: i64,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct Function {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(int64, tag = "2")]
        pub name: i64,
        #[prost(int64, tag = "3")]
        pub system_name: i64,
        #[prost(int64, tag = "4")]
        pub filename: i64,
    }
}

/// Texts, each once. The first is empty.
struct Strings {
    all: Vec<String>,
    ids: HashMap<String, i64>,
}

impl Strings {
    fn new() -> Self {
        let mut strings = Self { all: Vec::new(), ids: HashMap::new() };
        strings.id("");
        strings
    }

    fn id(&mut self, text: &str) -> i64 {
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        let id = self.all.len() as i64;
        self.all.push(text.to_owned());
        self.ids.insert(text.to_owned(), id);
        id
    }
}

/// The file of a profile. With an earlier profile, its samples follow with negative values, as
/// `go tool pprof -diff_base` has them.
pub fn write(profile: &Profile, before: Option<&Profile>) -> Result<Vec<u8>> {
    let mut strings = Strings::new();
    let sample_type = TYPES
        .map(|(kind, unit)| proto::ValueType { r#type: strings.id(kind), unit: strings.id(unit) });
    let period_type = proto::ValueType { r#type: strings.id("space"), unit: strings.id("bytes") };
    let about = &profile.about;
    let mut comments = vec![format!("{PROGRAM}{}", about.program)];
    comments.extend(about.pid.map(|pid| format!("{PID}{pid}")));
    for (name, value) in [
        (MOMENT, about.moment.clone()),
        (DROPPED_STACKS, non_zero(about.dropped_stacks)),
        (DROPPED_SAMPLES, non_zero(about.dropped_samples)),
    ] {
        if !value.is_empty() {
            comments.push(format!("{name}{value}"));
        }
    }
    comments.retain(|comment| comment != PROGRAM);
    let mut message = proto::Profile {
        sample_type: sample_type.to_vec(),
        time_nanos: about.time_nanos,
        duration_nanos: about.duration_nanos,
        period_type: Some(period_type),
        period: i64::try_from(about.mean_bytes).unwrap_or(i64::MAX),
        comment: comments.iter().map(|comment| strings.id(comment)).collect(),
        default_sample_type: strings.id("inuse_space"),
        ..proto::Profile::default()
    };
    add(&mut message, &mut strings, profile, 1.0);
    if let Some(before) = before {
        add(&mut message, &mut strings, before, -1.0);
    }
    message.string_table = strings.all;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&message.encode_to_vec())?;
    Ok(encoder.finish()?)
}

fn non_zero(number: u64) -> String {
    if number == 0 { String::new() } else { number.to_string() }
}

/// Adds the stacks of a profile, their values times `sign`.
fn add(message: &mut proto::Profile, strings: &mut Strings, profile: &Profile, sign: f64) {
    let first_mapping = message.mapping.len() as u64 + 1;
    let first_function = message.function.len() as u64 + 1;
    let first_location = message.location.len() as u64 + 1;
    for image in &profile.images {
        message.mapping.push(proto::Mapping {
            id: message.mapping.len() as u64 + 1,
            memory_start: image.start,
            memory_limit: image.end,
            file_offset: image.offset,
            filename: strings.id(&image.path),
            build_id: strings.id(&image.build_id),
            has_functions: image.has_functions,
            has_filenames: image.has_lines,
            has_line_numbers: image.has_lines,
            has_inline_frames: image.has_lines,
        });
    }
    for function in &profile.functions {
        message.function.push(proto::Function {
            id: message.function.len() as u64 + 1,
            name: strings.id(&function.name),
            system_name: strings.id(&function.system_name),
            filename: strings.id(&function.file),
        });
    }
    for location in &profile.locations {
        let lines = location.lines.iter().map(|line| proto::Line {
            function_id: first_function + line.function as u64,
            line: line.line.into(),
        });
        message.location.push(proto::Location {
            id: message.location.len() as u64 + 1,
            mapping_id: location.image.map_or(0, |image| first_mapping + image as u64),
            address: location.address,
            line: lines.collect(),
        });
    }
    for stack in &profile.stacks {
        let Values { live, allocated } = stack.values;
        let values = [allocated.objects, allocated.bytes, live.objects, live.bytes];
        let value = values.map(|value| (sign * value).round() as i64);
        let ids = stack.locations.iter().map(|&location| first_location + location as u64);
        if value != [0; 4] {
            message
                .sample
                .push(proto::Sample { location_id: ids.collect(), value: value.to_vec() });
        }
    }
}

/// Reads a file.
pub fn read(content: &[u8]) -> Result<Profile> {
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
    Ok(Profile {
        about,
        images: images.collect(),
        stacks: stacks.collect(),
        functions,
        locations,
        ledger: None,
        remarks: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::example;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_is_read() {
        let profile = example::profile();
        let read = read(&write(&profile, None).unwrap()).unwrap();
        assert_eq!(read.about, profile.about);
        assert_eq!(read.images, profile.images);
        assert_eq!(read.functions, profile.functions);
        assert_eq!(read.locations, profile.locations);
        assert_eq!(read.stacks, profile.stacks);
    }

    #[test]
    fn a_difference_has_the_earlier_samples_with_negative_values() {
        let (old, new) = (example::earlier(), example::profile());
        let difference = read(&write(&new, Some(&old)).unwrap()).unwrap();
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
            let error = format!("{:#}", read(&content).unwrap_err());
            assert!(error.contains(words), "{content:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn damaged_messages_are_read_or_refused(at in 0usize..4000, byte in any::<u8>()) {
            let mut bytes = Vec::new();
            let whole = write(&example::profile(), None).unwrap();
            MultiGzDecoder::new(whole.as_slice()).read_to_end(&mut bytes).unwrap();
            let at = at % bytes.len();
            bytes[at] = byte;
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(&bytes).unwrap();
            if let Ok(profile) = read(&encoder.finish().unwrap()) {
                let _ = crate::profile::view::View::of(profile);
            }
        }
    }
}
