//! Makes the report of a process's resident memory, line by line.

use std::fs;
use std::time::{Duration, Instant};

use ebbmalloc::internals::Ledger;
use libc::pid_t;
use serde::Serialize;

use super::memory::{Heap, Process, ended};
use super::pymalloc;
use super::smaps::{self, Group, Mapping};
use crate::procfs;

/// From this share of resident memory on, the report draws conclusions about memory of others than
/// ebbmalloc.
const WORTH: f64 = 0.3;
/// The number of names listed for a group.
const NAMES: usize = 3;

/// A process's memory at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub pid: pid_t,
    pub program: String,
    /// Seconds from the start of watching, or of the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_seconds: Option<f64>,
    /// Resident bytes by the kernel's count.
    pub resident_bytes: u64,
    /// The sum of the lines.
    pub accounted_bytes: u64,
    pub swapped_bytes: u64,
    /// How long reading took, in seconds.
    pub took_seconds: f64,
    pub heaps: Vec<HeapReport>,
    pub lines: Vec<Line>,
    pub classes: Vec<Class>,
    pub conclusions: Vec<String>,
}

/// A copy of ebbmalloc in the process.
#[derive(Clone, Debug, Serialize)]
pub struct HeapReport {
    pub version: String,
    pub mode: String,
    /// "check", "harden", "sample", or nothing.
    pub care: &'static str,
    /// Its limit (`EBB_LIMIT`); 0 for none.
    pub limit_bytes: u64,
    pub committed_bytes: u64,
    /// What it may have in huge pages, and why not more.
    pub huge_bytes: u64,
    pub huge_why: &'static str,
}

/// A line of the ledger.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    pub name: &'static str,
    #[serde(skip)]
    pub label: &'static str,
    /// Whether the line is about ebbmalloc's memory.
    pub ebbmalloc: bool,
    pub bytes: u64,
    pub meaning: String,
    pub knob: &'static str,
    /// The largest contributors.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub largest: Vec<(String, u64)>,
}

/// A size class that is in use.
#[derive(Clone, Debug, Serialize)]
pub struct Class {
    pub block_bytes: u64,
    pub spans: u64,
    pub live_blocks: u64,
    pub cached_blocks: u64,
    pub free_blocks: u64,
    /// Freed blocks in quarantine, by EBB_CHECK or EBB_HARDEN.
    pub held_back_blocks: u64,
    pub live_bytes: u64,
    pub cached_bytes: u64,
    pub pinned_bytes: u64,
    pub sparse_spans: u64,
    pub sparse_blocks: u64,
    pub sparse_bytes: u64,
}

impl Report {
    /// Reads a process, which goes on meanwhile.
    pub fn of(pid: pid_t) -> anyhow::Result<Self> {
        let started = Instant::now();
        let mut process = Process::open(pid)?;
        let before = Mapping::all_of(pid)?;
        if before.is_empty() {
            return Err(ended(pid));
        }
        let mut ledger = Ledger::EMPTY;
        let mut heaps = Vec::new();
        let (mut notes, mut huge_notes) = (Vec::new(), Vec::new());
        for heap in process.heaps(&before) {
            match heap {
                Heap::Readable(beacon) => {
                    let one = Ledger::of(&beacon, &mut process);
                    let huge = beacon.huge_pages(&mut process);
                    huge_notes.push(huge.to_string());
                    heaps.push(HeapReport {
                        version: beacon.version().into(),
                        mode: beacon.mode().into(),
                        care: beacon.care(&mut process),
                        limit_bytes: beacon.limit_bytes(&mut process),
                        committed_bytes: one.committed,
                        huge_bytes: huge.bytes,
                        huge_why: huge.why,
                    });
                    ledger.add(&one);
                }
                Heap::OtherVersion(version) => notes.push(format!(
                    "This process has a heap of ebbmalloc {version}, which this ebb ({}) cannot \
                     read: it counts as other anonymous memory. Use the ebb of that version.",
                    ebbmalloc::VERSION
                )),
            }
        }
        // The kernel's count, as close in time to the reading of the pages as possible.
        let mappings = Mapping::all_of(pid)?;
        let resident = procfs::resident(pid).ok_or_else(|| ended(pid))?;
        let mut ours = std::mem::take(&mut process.resident);
        ours.sort_by_key(|range| range.start);
        let exe = fs::read_link(format!("/proc/{pid}/exe")).ok();
        let exe = exe.as_deref().and_then(|exe| exe.to_str());
        let pointers = smaps::stack_pointers(pid);
        let python = pymalloc::possible(&mappings);
        let mut rest: Vec<(Group, String, u64)> = Vec::new();
        for (mapping, group, name) in smaps::grouped(&mappings, exe, &pointers) {
            let group = if smaps::begins_in(mapping, &ours) { Group::Ours } else { group };
            let bytes = smaps::less(mapping, &ours);
            let arenas = if python && group == Group::Anonymous && mapping.is_private_memory() {
                pymalloc::resident(&mut process, &mapping.range).min(bytes)
            } else {
                0
            };
            rest.push((Group::Pymalloc, String::new(), arenas));
            rest.push((group, name.to_string(), bytes - arenas));
        }
        let mut lines: Vec<Line> = ledger
            .parts()
            .into_iter()
            .map(|part| Line {
                name: part.name,
                label: part.label,
                ebbmalloc: true,
                bytes: part.bytes,
                meaning: match part.name {
                    "small" => format!(
                        "{} At most {} of it is rounding up to size classes.",
                        part.meaning,
                        super::text::mib(ledger.small_rounding_most)
                    ),
                    _ => part.meaning.into(),
                },
                knob: part.knob,
                largest: Vec::new(),
            })
            .collect();
        for group in Group::ALL {
            let within = || rest.iter().filter(|part| part.0 == group);
            let largest = within().map(|(_, name, bytes)| (name.clone(), *bytes));
            lines.push(Line {
                name: group.name(),
                label: group.label(),
                ebbmalloc: false,
                bytes: within().map(|part| part.2).sum(),
                meaning: group.meaning().into(),
                knob: group.knob(),
                largest: smaps::largest(largest, if group.has_names() { NAMES } else { 0 }),
            });
        }
        let mut conclusions = Vec::new();
        ledger.for_each_conclusion(resident, |conclusion| conclusions.push(conclusion.to_string()));
        conclusions.extend(huge_notes);
        conclusions.extend(not_ours(&lines, resident));
        conclusions.extend(notes);
        if heaps.is_empty() {
            conclusions.push(
                "This process has no ebbmalloc that ebb can read: the lines are what the kernel \
                 knows. `ebb why -- PROGRAM` runs a program on ebbmalloc."
                    .into(),
            );
        }
        Ok(Self {
            pid,
            program: fs::read_to_string(format!("/proc/{pid}/comm"))
                .unwrap_or_default()
                .trim()
                .into(),
            at_seconds: None,
            resident_bytes: resident,
            accounted_bytes: lines.iter().map(|line| line.bytes).sum(),
            swapped_bytes: mappings.iter().map(|mapping| mapping.swapped).sum(),
            took_seconds: Duration::as_secs_f64(&started.elapsed()),
            heaps,
            lines,
            classes: classes(&ledger),
            conclusions,
        })
    }

    /// A line's bytes.
    pub fn bytes(&self, name: &str) -> u64 {
        self.lines.iter().find(|line| line.name == name).map_or(0, |line| line.bytes)
    }
}

fn classes(ledger: &Ledger) -> Vec<Class> {
    let used = ledger.classes.iter().enumerate().filter(|(_, row)| row.spans > 0);
    used.map(|(index, row)| Class {
        block_bytes: ebbmalloc::internals::class_bytes(index) as u64,
        spans: row.spans,
        live_blocks: row.live,
        cached_blocks: row.cached,
        free_blocks: row.free,
        held_back_blocks: row.held_back,
        live_bytes: row.live_bytes,
        cached_bytes: row.cached_bytes,
        pinned_bytes: row.pinned_bytes,
        sparse_spans: row.sparse_spans,
        sparse_blocks: row.sparse_blocks,
        sparse_bytes: row.sparse_bytes,
    })
    .collect()
}

/// The conclusion for a process with much memory of others than ebbmalloc.
fn not_ours(lines: &[Line], resident: u64) -> Option<String> {
    let others = || lines.iter().filter(|line| !line.ebbmalloc);
    let bytes: u64 = others().map(|line| line.bytes).sum();
    let share = bytes as f64 / resident.max(1) as f64;
    let most = others().max_by_key(|line| line.bytes)?;
    (share >= WORTH).then(|| {
        let (all, most_of) = (super::text::mib(bytes), super::text::mib(most.bytes));
        let name =
            most.largest.first().map_or(String::new(), |(name, _)| format!(", mainly {name}"));
        let (and, knob) = match most.name == Group::Pymalloc.name() {
            true => ("", format!(". {}", most.knob)),
            false => (", and no allocator can change it", String::new()),
        };
        format!(
            "{:.0} % ({all}) is not ebbmalloc's{and}: most of it is {} ({most_of}{name}){knob}.",
            100.0 * share,
            most.label
        )
    })
}
