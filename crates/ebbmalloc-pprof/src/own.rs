//! Reads the heap profile of this process.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbmalloc::profile::{self, Snapshot};

use crate::internals::data::{About, Counts, Raw, RawStack, Values};
use crate::internals::jit::JitMap;
use crate::internals::maps;

/// How often a profile is read again that was begun anew meanwhile.
const TRIES: u32 = 5;

/// The profile; `None` if there never was one.
pub fn read() -> Option<Raw> {
    let (snapshot, stacks) = (0..TRIES).find_map(|_| stacks())?;
    let header = snapshot.header();
    let program = fs::read_to_string("/proc/self/comm").unwrap_or_default();
    // The number that /proc knows, which differs from the process ID where /proc is another's.
    let number = fs::read_link("/proc/self").ok();
    let number = number.and_then(|number| number.to_str()?.parse().ok());
    let pid = number.unwrap_or(process::id() as i32);
    let memory = File::open("/proc/self/mem").ok();
    let mappings = maps::of_process(pid, |address, bytes| {
        memory.as_ref().is_some_and(|memory| memory.read_exact_at(bytes, address).is_ok())
    });
    let about = About {
        program: program.trim_end().into(),
        pid: Some(pid),
        moment: String::new(),
        mean_bytes: header.mean_bytes,
        time_nanos: nanoseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()),
        duration_nanos: nanoseconds(snapshot.age()),
        dropped_stacks: header.dropped_stacks,
        dropped_samples: header.dropped_samples,
    };
    Some(Raw { about, stacks, mappings, jit: JitMap::of_process(pid) })
}

/// All stacks; `None` if a new profile began meanwhile.
fn stacks() -> Option<(Snapshot, Vec<RawStack>)> {
    let snapshot = profile::snapshot()?;
    let mut stacks = Vec::new();
    let counts = |counts: profile::Counts| Counts { objects: counts.objects, bytes: counts.bytes };
    let is_whole = snapshot.for_each_stack(|stack| {
        let values = Values { live: counts(stack.live), allocated: counts(stack.allocated) };
        stacks.push(RawStack { calls: stack.calls.to_vec(), values });
    });
    is_whole.then_some((snapshot, stacks))
}

fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}
