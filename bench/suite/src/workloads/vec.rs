//! Cases with vectors that grow push by push, so that nearly all calls are `realloc`: a `Vec` on
//! the global allocator, which is preloaded, and a `Vec` generic over the allocator, which is built
//! in.

use anyhow::Result;

use super::built_in::Builds;
use crate::case::{Case, Job};
use crate::kit::Kit;

/// Name, description, and number of times on 1 thread and on each of 32.
const GROWTHS: [(&str, &str, u32, u32); 3] = [
    ("small", "8 vectors of 500 numbers", 60_000, 4_000),
    ("large", "500,000 numbers onto 16,384", 400, 25),
    ("arrays", "1,000 arrays of 8 KiB", 200, 10),
];

pub fn cases(kit: &Kit) -> Result<Vec<Case>> {
    let builds = Builds::make(kit)?;
    let mut cases = Vec::new();
    for (growth, words, alone, together) in GROWTHS {
        for (threads, times) in [(1, alone), (32, together)] {
            let with = move |job: Job, vec: &str| {
                let options = format!("{growth} --vec {vec} --threads {threads} --times {times}");
                job.args(options.split(' '))
            };
            let name = |vec| format!("vec/{growth}-{vec}-{threads}");
            let about = |vec| format!("{words}, {times} times on {threads} threads; {vec} Vec");
            let job = with(builds.preloaded("vec"), "global");
            cases.push(Case::new(name("global"), about("plain"), job));
            let job = move |job| with(job, "generic");
            cases.push(builds.case(name("generic"), about("generic"), "vec", job));
        }
    }
    let quick = |case: Case| if case.name == "vec/arrays-global-1" { case.quick() } else { case };
    Ok(cases.into_iter().map(quick).collect())
}
