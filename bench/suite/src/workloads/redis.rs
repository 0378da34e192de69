//! Cases with redis-server under redis-benchmark. The figures are the server's: the time of all
//! requests, its CPU time, its memory when loaded, and a second after everything was deleted
//! (`end_kib`).

use anyhow::Result;

use crate::case::{Allocator, Case, Job};
use crate::kit::Kit;

/// Values of three sizes, each replacing those before it.
const STRINGS: &[&str] = &[
    "-t set,get -d 64 -n 200000 -r 100000 -P 16",
    "-t set -d 700 -n 100000 -r 100000 -P 16",
    "-t set -d 5000 -n 30000 -r 100000 -P 16",
];

/// Lists, sets, hashes and sorted sets that grow; then the lists are read, and shrink.
const COLLECTIONS: &[&str] = &[
    "-t lpush,rpush,sadd,hset,zadd -d 40 -n 100000 -r 100000 -P 16",
    "-t lrange_100 -n 10000 -P 16",
    "-t lpop,rpop -n 90000 -P 16",
];

pub fn cases(kit: &Kit) -> Result<Vec<Case>> {
    kit.packages(&["python3", "redis-server", "redis-tools"])?;
    let script = kit.source("scripts/tools/redis.py");
    let case = |name, about, loads: &'static [&str]| {
        let script = script.clone();
        Case::chosen(name, about, move |allocator: &Allocator| {
            let job = Job::new("/usr/bin/python3").arg(&script).built_in();
            let library = allocator.library.as_ref().map(|path| path.as_os_str());
            let choice = library.into_iter().flat_map(|path| ["--library".as_ref(), path]);
            Ok(job.args(choice).args(loads.iter()))
        })
    };
    Ok(vec![
        case("redis/strings", "strings of three sizes set, read and replaced", STRINGS).quick(),
        case("redis/collections", "lists, sets, hashes that grow and shrink", COLLECTIONS),
    ])
}
