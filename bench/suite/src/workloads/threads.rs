//! Cases with classic allocator loads, on 1 to 4000 threads, and on as many as there are CPUs. The
//! work of all threads together is the same, so that a program's cases compare. Where more than two
//! can run at once, the work is multiplied so that each case takes as long.

use anyhow::Result;

use crate::case::{Case, Job};
use crate::kit::Kit;

struct Program {
    name: &'static str,
    about: &'static str,
    threads: &'static [u32],
    /// Number of threads of the case that `--quick` runs; 0 for none.
    quick: u32,
    /// Whether all threads share the work, and not one does most of it.
    shared: bool,
}

const PROGRAMS: &[Program] = &[
    Program {
        name: "mstress",
        about: "objects kept, and passed on through shared slots, while threads come and go",
        threads: &[1, 2, 4, 64, 1000, 4000],
        quick: 0,
        shared: true,
    },
    Program {
        name: "larson",
        about: "objects replaced in slots that threads hand over to their successors",
        threads: &[1, 2, 4, 64, 1000, 4000],
        quick: 4,
        shared: true,
    },
    Program {
        name: "xmalloc",
        about: "half of the threads allocate, half free",
        threads: &[2, 4, 64, 1000],
        quick: 64,
        shared: true,
    },
    Program {
        name: "pipe",
        about: "half of the threads allocate, half free, all objects of 1 KiB",
        threads: &[2, 4, 64],
        quick: 0,
        shared: true,
    },
    Program {
        name: "sh8bench",
        about: "bursts of small objects, freed in mixed orders and by others",
        threads: &[1, 2, 4, 64],
        quick: 0,
        shared: true,
    },
    Program {
        name: "cache-scratch",
        about: "objects from one thread freed by others, who then allocate and write \
                (false sharing)",
        threads: &[1, 2, 4, 64],
        quick: 0,
        shared: true,
    },
    Program {
        name: "queue",
        about: "many producers, one consumer, each message an object",
        threads: &[2, 4, 64],
        quick: 0,
        shared: false,
    },
];

impl Program {
    /// Returns the numbers of threads in order, with the number of CPUs if that is more than `FEW`.
    fn threads_on(&self, cpus: u32) -> Vec<u32> {
        let mut all = self.threads.to_vec();
        if cpus > FEW {
            all.push(cpus);
        }
        all.sort();
        all.dedup();
        all
    }
}

/// A number of CPUs up to this adds no case: its number of threads, or one close to it, is listed.
const FEW: u32 = 4;
/// From this number of threads on, some allocators take long (a peer, a minute), so two rounds must
/// be enough.
const LONG: u32 = 1000;

pub fn cases(kit: &Kit) -> Result<Vec<Case>> {
    let loads = kit.build("loads", "")?.join("loads");
    let mut cases = Vec::new();
    for program in PROGRAMS {
        for threads in program.threads_on(kit.cpus) {
            let mut job = Job::new(&loads).arg(program.name).arg(format!("--threads={threads}"));
            if program.shared {
                job = job.arg(format!("--times={}", (threads.min(kit.cpus) / 2).max(1)));
            }
            let name = format!("threads/{}-{threads}", program.name);
            let mut case =
                Case::new(name, program.about, job).threads(program.name, threads).modes();
            if threads >= LONG {
                case = case.at_most(2);
            }
            cases.push(if threads == program.quick { case.quick() } else { case });
        }
    }
    Ok(cases)
}
