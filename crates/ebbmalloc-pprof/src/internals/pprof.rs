//! Writes pprof's files: `profile.proto`, compressed by gzip.

use std::collections::HashMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use super::data::{Profile, Values};

/// The bytes that were allocated, and those of them that are live.
pub const ALLOC_SPACE: &str = "alloc_space";
pub const INUSE_SPACE: &str = "inuse_space";
/// The types of a sample's values, in the order of Go's heap profiles.
pub const TYPES: [(&str, &str); 4] = [
    ("alloc_objects", "count"),
    (ALLOC_SPACE, "bytes"),
    ("inuse_objects", "count"),
    (INUSE_SPACE, "bytes"),
];
/// The beginnings of comments that `ebb` writes and reads.
pub const PROGRAM: &str = "program: ";
pub const PID: &str = "pid: ";
pub const MOMENT: &str = "moment: ";
pub const DROPPED_STACKS: &str = "dropped stacks: ";
pub const DROPPED_SAMPLES: &str = "dropped samples: ";

/// The messages of `profile.proto`, as far as heap profiles use them.
pub mod proto {
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
        #[prost(int64, tag = "7")]
        pub drop_frames: i64,
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
/// `go tool pprof -diff_base` has them. Readers first show the values of the type `first`.
pub fn write(profile: &Profile, before: Option<&Profile>, first: &str) -> io::Result<Vec<u8>> {
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
        default_sample_type: strings.id(first),
        drop_frames: strings.id(&profile.drop_frames),
        ..proto::Profile::default()
    };
    add(&mut message, &mut strings, profile, 1.0);
    if let Some(before) = before {
        add(&mut message, &mut strings, before, -1.0);
    }
    message.string_table = strings.all;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&message.encode_to_vec())?;
    encoder.finish()
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
