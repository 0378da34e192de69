//! Joins a profile with the ledger of `ebb why`: live bytes by stack and all other memory add up to
//! what is resident.

use crate::why::report::Report;

/// The lines of the ledger that blocks in use are in.
const IN_USE: [&str; 2] = ["small", "large"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Live blocks that the profile's stacks allocated.
    ByStack,
    /// Blocks in use that are not in the profile.
    OtherInUse,
    /// Memory that ebbmalloc holds without being in use.
    Held,
    /// Memory that is not ebbmalloc's.
    Others,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::ByStack => "stacks",
            Self::OtherInUse => "in-use",
            Self::Held => "held",
            Self::Others => "others",
        }
    }
}

/// A part of resident memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub kind: Kind,
    pub label: String,
    pub bytes: u64,
    pub meaning: String,
}

/// The parts of resident memory; `live` is the profile's estimate of live bytes.
pub fn parts(report: &Report, live: f64) -> Vec<Part> {
    let in_use: u64 = IN_USE.iter().map(|name| report.bytes(name)).sum();
    let estimate = live.max(0.0).round() as u64;
    let by_stack = estimate.min(in_use);
    let mut meaning = "Live blocks by call stack: an estimate from samples.".to_owned();
    if estimate > in_use {
        meaning += &format!(
            " It is {:.0} % above what is resident in blocks: by chance, or because pages of new \
             blocks were never touched.",
            100.0 * (estimate - in_use) as f64 / in_use.max(1) as f64
        );
    }
    let mut parts = vec![
        Part { kind: Kind::ByStack, label: "in use, by stack".into(), bytes: by_stack, meaning },
        Part {
            kind: Kind::OtherInUse,
            label: "in use, not in this profile".into(),
            bytes: in_use - by_stack,
            meaning: "Blocks allocated before profiling began, rounding up to size classes, and \
                      the error of the estimate."
                .into(),
        },
    ];
    for line in report.lines.iter().filter(|line| !IN_USE.contains(&line.name)) {
        parts.push(Part {
            kind: if line.ebbmalloc { Kind::Held } else { Kind::Others },
            label: line.label.into(),
            bytes: line.bytes,
            meaning: line.meaning.clone(),
        });
    }
    parts.retain(|part| part.bytes > 0);
    parts
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::why::report::Line;

    /// A made-up report: 70 MiB resident.
    pub fn report() -> Report {
        let line = |name, label, ebbmalloc, mib: u64| Line {
            name,
            label,
            ebbmalloc,
            bytes: mib << 20,
            meaning: format!("What {label} means."),
            knob: "",
            largest: Vec::new(),
        };
        Report {
            pid: 4242,
            program: "server".into(),
            at_seconds: None,
            resident_bytes: 100 << 20,
            accounted_bytes: 100 << 20,
            swapped_bytes: 0,
            took_seconds: 0.01,
            heaps: Vec::new(),
            lines: vec![
                line("small", "small blocks in use", true, 60),
                line("large", "large blocks in use", true, 10),
                line("cached", "caches", true, 4),
                line("pinned", "pinned free blocks", true, 11),
                line("free_runs", "free runs", true, 7),
                line("tables", "tables", true, 1),
                line("slabs", "slabs", true, 0),
                line("program_and_libraries", "program and libraries", false, 7),
            ],
            classes: Vec::new(),
            conclusions: Vec::new(),
        }
    }

    #[test]
    fn parts_add_up_to_resident_memory() {
        for live in [0.0, 63.0, 70.0, 80.0] {
            let parts = parts(&report(), live * 1048576.0);
            assert_eq!(parts.iter().map(|part| part.bytes).sum::<u64>(), 100 << 20);
            let by_stack = parts.iter().find(|part| part.kind == Kind::ByStack);
            let expected = (live.min(70.0) * 1048576.0) as u64;
            assert_eq!(by_stack.map_or(0, |part| part.bytes), expected);
        }
    }
}
