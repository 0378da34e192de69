//! Reads the profile that the engine itself writes, in gperftools' text format.
//!
//! ```text
//! heap profile:   3:  6144 [  10:  20480] @ heap_v2/524288
//! # program: server
//!   1:  2048 [  4:  8192] @ 0x55d0c0de1234 0x55d0c0de5678
//!
//! MAPPED_LIBRARIES:
//! 55d0c0de0000-55d0c0df0000 r-xp 00000000 fe:00 1234 /usr/bin/server
//! ```
//!
//! Each line counts the samples of one stack and one size of blocks: live objects and bytes, and in
//! brackets all that were allocated. The addresses are return addresses.

use std::collections::HashMap;

use anyhow::{Context, Result, bail};
use ebbmalloc_pprof::internals::maps;

use super::data::{About, Counts, Raw, RawStack, Values};

/// The beginning of each such file.
pub const BEGINNING: &[u8] = b"heap profile:";

/// Parses a file's content.
pub fn parse(content: &[u8]) -> Result<Raw> {
    let text = String::from_utf8_lossy(content);
    let mut lines = text.lines().enumerate();
    let (_, head) = lines.next().context("the file is empty")?;
    let mut raw =
        Raw { about: About { mean_bytes: mean(head)?, ..About::default() }, ..Raw::default() };
    let mut by_calls: HashMap<Vec<u64>, Values> = HashMap::new();
    let mut order = Vec::new();
    let mut build_ids = Vec::new();
    for (number, line) in lines.by_ref() {
        let line = line.trim();
        if line.starts_with("MAPPED_LIBRARIES:") {
            break;
        }
        if let Some(comment) = line.strip_prefix('#') {
            match comment.trim().split_once(": ") {
                Some(("build_id", value)) => build_ids.extend(value.split_once(' ').map(owned)),
                Some((name, value)) => note(&mut raw.about, name, value.trim()),
                None => {}
            }
        } else if !line.is_empty() {
            let (calls, values) = stack(line, raw.about.mean_bytes).with_context(|| {
                format!("line {}: not `live: bytes [allocated: bytes] @ addresses`", number + 1)
            })?;
            // Blocks of several sizes may come from one stack.
            *by_calls.entry(calls).or_insert_with_key(|calls| {
                order.push(calls.clone());
                Values::default()
            }) += values;
        }
    }
    raw.stacks =
        order.into_iter().map(|calls| RawStack { values: by_calls[&calls], calls }).collect();
    let rest: Vec<_> = lines.map(|(_, line)| line).collect();
    raw.mappings = maps::parse(&rest.join("\n"));
    raw.mappings.retain(|mapping| mapping.is_executable);
    if raw.about.program.is_empty()
        && let Some(first) = raw.mappings.iter().find(|mapping| mapping.is_file())
    {
        raw.about.program = first.path.rsplit('/').next().unwrap_or_default().to_owned();
    }
    for mapping in &mut raw.mappings {
        let own = build_ids.iter().find(|(_, path)| *path == mapping.path);
        mapping.head.build_id = own.and_then(|(digits, _)| bytes(digits));
    }
    Ok(raw)
}

/// Takes over what the engine's own file names say: `ebb.PID.exit.heap`.
pub fn note_file_name(about: &mut About, name: &str) {
    let mut parts = name.split('.');
    if let [Some("ebb"), Some(pid), Some(at), Some("heap"), None] = [(); 5].map(|()| parts.next())
        && let Ok(pid) = pid.parse()
    {
        about.pid.get_or_insert(pid);
        if about.moment.is_empty() {
            about.moment = moment(at).into();
        }
    }
}

fn owned((digits, path): (&str, &str)) -> (String, String) {
    (digits.to_owned(), path.trim().to_owned())
}

/// The bytes that hexadecimal digits stand for.
pub fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    pairs.collect()
}

/// The mean distance of samples, from the first line.
fn mean(head: &str) -> Result<u64> {
    let format = head
        .strip_prefix("heap profile:")
        .and_then(|rest| rest.rsplit_once('@'))
        .map(|(_, format)| format.trim())
        .context("not a heap profile of ebbmalloc: the first line has no `heap profile: … @ …`")?;
    match format.split_once('/') {
        Some(("heap_v2", mean)) => {
            mean.trim().parse().with_context(|| format!("`{mean}` is no mean number of bytes"))
        }
        _ => bail!(
            "the format is `{format}`, and ebb reads heap_v2. `go tool pprof` may read this file"
        ),
    }
}

fn note(about: &mut About, name: &str, value: &str) {
    match name {
        "program" => about.program = value.into(),
        "pid" => about.pid = value.parse().ok(),
        "at" => about.moment = moment(value).into(),
        "unix_ms" => about.time_nanos = nanoseconds(value, 1e6),
        "seconds" => about.duration_nanos = nanoseconds(value, 1e9),
        "dropped_stacks" => about.dropped_stacks = value.parse().unwrap_or(0),
        "dropped_samples" => about.dropped_samples = value.parse().unwrap_or(0),
        _ => {}
    }
}

fn nanoseconds(value: &str, unit: f64) -> i64 {
    // A conversion from floats saturates.
    value.parse::<f64>().map_or(0, |number| (number * unit) as i64)
}

fn moment(value: &str) -> &str {
    match value {
        "exit" => "at its end",
        "peak" => "at its peak",
        "limit" => "near its memory limit",
        "signal" => "at a signal",
        // The engine numbers the files that a signal asks for.
        other if other.bytes().all(|byte| byte.is_ascii_digit()) => "at a signal",
        other => other,
    }
}

/// A line `live: bytes [allocated: bytes] @ addresses`.
fn stack(line: &str, mean: u64) -> Option<(Vec<u64>, Values)> {
    let (counts, addresses) = line.split_once('@')?;
    let (live, allocated) = counts.split_once('[')?;
    let pair = |text: &str| {
        let (objects, bytes) = text.split_once(':')?;
        Some((objects.trim().parse().ok()?, bytes.trim().parse().ok()?))
    };
    let estimate = |(objects, bytes)| estimate(objects, bytes, mean);
    let values = Values {
        live: estimate(pair(live)?),
        allocated: estimate(pair(allocated.trim_end().strip_suffix(']')?)?),
    };
    let calls = addresses.split_whitespace().map(|address| {
        let return_address = u64::from_str_radix(address.strip_prefix("0x")?, 16).ok()?;
        Some(return_address.saturating_sub(1))
    });
    Some((calls.collect::<Option<_>>()?, values))
}

/// What sampled blocks of one size stand for. A block of `size` bytes is sampled with the
/// probability `1 - exp(-size / mean)`.
fn estimate(objects: u64, bytes: u64, mean: u64) -> Counts {
    if objects == 0 || mean <= 1 {
        return Counts { objects: objects as f64, bytes: bytes as f64 };
    }
    let size = bytes as f64 / objects as f64;
    let probability = -(-size / mean as f64).exp_m1();
    let scale = if probability > 0.0 { 1.0 / probability } else { 1.0 };
    Counts { objects: objects as f64 * scale, bytes: bytes as f64 * scale }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "\
heap profile:   3:   530432 [  4:  532480] @ heap_v2/524288
# program: server
# pid: 12
# at: peak
# unix_ms: 1700000000000
# seconds: 2.5
# dropped_stacks: 1
# dropped_samples: 2
# build_id: 0aff /usr/bin/server
# later versions: may say more
   1:   524288 [    1:   524288] @ 0x1001 0x2001
   2:     6144 [    3:     8192] @ 0x1001 0x2001

MAPPED_LIBRARIES:
00001000-00003000 r-xp 00001000 fe:00 1234 /usr/bin/server
00003000-00004000 rw-p 00000000 00:00 0
";

    #[test]
    fn sizes_of_one_stack_are_estimated_apart_and_added() {
        let raw = parse(TEXT.as_bytes()).unwrap();
        let [stack] = &raw.stacks[..] else { panic!("{:?}", raw.stacks) };
        assert_eq!(stack.calls, [0x1000, 0x2000]);
        let large = 1.0 / (1.0 - (-1.0f64).exp());
        let small = 1.0 / (1.0 - (-3072.0f64 / 524288.0).exp());
        let objects = large + 2.0 * small;
        assert!((stack.values.live.objects - objects).abs() < 1e-6);
        let bytes = 524288.0 * large + 6144.0 * small;
        assert!((stack.values.live.bytes - bytes).abs() < 1e-3);
        assert_eq!(
            raw.about,
            About {
                program: "server".into(),
                pid: Some(12),
                moment: "at its peak".into(),
                mean_bytes: 524288,
                time_nanos: 1_700_000_000_000_000_000,
                duration_nanos: 2_500_000_000,
                dropped_stacks: 1,
                dropped_samples: 2,
            }
        );
        assert_eq!(raw.mappings.len(), 1);
        assert_eq!(raw.mappings[0].head.build_id.as_deref(), Some(&[0x0a, 0xff][..]));
    }

    #[test]
    fn names_of_files() {
        let of = |name| {
            let mut about = About::default();
            note_file_name(&mut about, name);
            (about.pid, about.moment)
        };
        assert_eq!(of("ebb.12.exit.heap"), (Some(12), "at its end".into()));
        assert_eq!(of("ebb.12.3.heap"), (Some(12), "at a signal".into()));
        assert_eq!(of("ebb.12.exit.heap.gz"), (None, String::new()));
        assert_eq!(of("server.heap"), (None, String::new()));
    }

    #[test]
    fn wrong_files_are_explained() {
        for (text, words) in [
            ("", "empty"),
            ("hello", "not a heap profile"),
            ("heap profile: 1: 2 [3: 4] @ heapprofile", "ebb reads heap_v2"),
            ("heap profile: 1: 2 [3: 4] @ heap_v2/x", "no mean number"),
            ("heap profile: 1: 2 [3: 4] @ heap_v2/1\n\nwhat\n", "line 3"),
            ("heap profile: 1: 2 [3: 4] @ heap_v2/1\n1: 2 [3: 4] @ 12\n", "line 2"),
        ] {
            let error = format!("{:#}", parse(text.as_bytes()).unwrap_err());
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    fn render(mean: u64, stacks: &[(Vec<u64>, [u64; 4])]) -> String {
        let mut text = format!("heap profile: 0: 0 [0: 0] @ heap_v2/{mean}\n");
        for (calls, [live, live_bytes, allocated, allocated_bytes]) in stacks {
            let calls: Vec<_> = calls.iter().map(|call| format!(" {:#x}", call + 1)).collect();
            text += &format!(
                "{live:>7}: {live_bytes:>9} [{allocated:>7}: {allocated_bytes:>9}] @{}\n",
                calls.concat()
            );
        }
        text + "\nMAPPED_LIBRARIES:\n"
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(content in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&content);
        }

        #[test]
        fn damaged_files_are_read_or_refused(
            at in 0..TEXT.len(), byte in any::<u8>(), length in 0..TEXT.len()
        ) {
            let mut content = TEXT.as_bytes().to_vec();
            content[at] = byte;
            let _ = parse(&content);
            let _ = parse(&content[..length]);
        }

        /// Every stack comes back, once, with at least the objects that were sampled.
        #[test]
        fn what_is_written_is_read(
            mean in 1u64..1 << 30,
            stacks in prop::collection::vec(
                (
                    prop::collection::vec(0..u64::MAX, 0..20),
                    prop::array::uniform2((0u64..1 << 20, 1u64..1 << 20)),
                ),
                0..20,
            )
        ) {
            let counts = |pairs: &[(u64, u64); 2]| {
                let [(live, live_size), (allocated, size)] = *pairs;
                [live, live * live_size, allocated, allocated * size]
            };
            let stacks: Vec<_> =
                stacks.iter().map(|(calls, pairs)| (calls.clone(), counts(pairs))).collect();
            let raw = parse(render(mean, &stacks).as_bytes()).unwrap();
            let mut distinct: Vec<_> = stacks.iter().map(|stack| stack.0.clone()).collect();
            distinct.sort();
            distinct.dedup();
            let mut read: Vec<_> = raw.stacks.iter().map(|stack| stack.calls.clone()).collect();
            read.sort();
            prop_assert_eq!(distinct, read);
            let sampled: u64 = stacks.iter().map(|stack| stack.1[0]).sum();
            let estimated: f64 = raw.stacks.iter().map(|stack| stack.values.live.objects).sum();
            prop_assert!(estimated >= sampled as f64 * (1.0 - 1e-9));
        }
    }
}
