//! Cases that measure memory over time: a load, then idling, like a server without requests.

use anyhow::Result;

use crate::case::{Case, Job};
use crate::kit::Kit;

const LOADS: [(&str, &str); 6] = [
    ("free-all", "one thread fills 250 MiB with blocks to 16 KiB and frees them, four times"),
    ("survivors", "1 GiB of small blocks, all freed but every 100th"),
    ("pool", "8 threads with bursts of work and pauses, all freed each time"),
    ("consumer", "one thread allocates batches of 50 MiB, another frees them"),
    ("comers", "10,000 short threads, some at a time, each of which leaves a few blocks"),
    ("buffers", "two threads replace buffers of 64 to 256 KiB at random, and keep 1,000"),
];

pub fn cases(kit: &Kit) -> Result<Vec<Case>> {
    let loads = kit.build("loads", "")?.join("loads");
    let job = |load: &str, seconds: u32| {
        Job::new(&loads).args(["idle", load]).arg(format!("--idle={seconds}"))
    };
    let mut cases = Vec::new();
    for (load, about) in LOADS {
        let about = format!("{about}; then 10 s idle");
        // Each takes 10 seconds more, so two rounds must be enough.
        cases.push(Case::new(format!("idle/{load}"), about, job(load, 10)).at_most(2));
    }
    let short = "as idle/pool, then 1 s idle";
    cases.push(Case::new("idle/pool-short", short, job("pool", 1)).at_most(2).quick());
    Ok(cases)
}
