//! Cases with programs that spend much of their time in the allocator: scripts for interpreters
//! that take each object from `malloc`, and programs on Rust's async and parallel libraries.

use anyhow::Result;

use crate::case::{Case, Job};
use crate::kit::Kit;

pub fn cases(kit: &Kit) -> Result<Vec<Case>> {
    kit.packages(&["lua5.4", "perl", "python3", "ruby"])?;
    let program = kit.build("allocating", "")?.join("allocating");
    let rust = |arguments: &[&str]| Job::new(&program).args(arguments);
    let script = |interpreter: &str, name: &str| {
        let path = kit.source("scripts/allocating").join(name);
        Job::new(format!("/usr/bin/{interpreter}")).arg(path)
    };
    let python = script("python3", "records.py").env("PYTHONMALLOC", "malloc");
    let case = |name: &str, about: &str, job| Case::new(format!("allocating/{name}"), about, job);
    Ok(vec![
        case("lua", "Lua: trees of tables, a table of strings", script("lua5.4", "tree.lua")),
        case("perl", "perl: a hash of growing strings", script("perl", "hash.pl")),
        case("ruby", "ruby: words counted and grouped", script("ruby", "words.rb")),
        case("python", "Python without pymalloc: JSON, trees of objects", python),
        case("json", "serde_json: 60,000 records", rust(&["records", "60000"])).quick(),
        case("rayon", "rayon: maps of strings, merged", rust(&["maps", "8000"])),
        case("tokio-32k", "tokio: channels of 32 KiB", rust(&["channels", "32768", "40000"])),
        case("tokio-64k", "tokio: channels of 64 KiB", rust(&["channels", "65536", "20000"])),
    ])
}
