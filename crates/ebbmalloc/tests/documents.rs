//! The tables in `docs/`, and Python's types, say what the code declares. `EBB_BLESS=1 cargo test` writes them anew.

use std::fmt::Write;
use std::{env, fs};

use ebbmalloc::internals::{Options, document_tuning};
use ebbmalloc::{ClassStats, Stats};

fn check(file: &str, text: &str) {
    let path = format!("{}/../../{file}", env!("CARGO_MANIFEST_DIR"));
    if env::var_os("EBB_BLESS").is_some() {
        fs::write(&path, text).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(written, text, "{file} is out of date; EBB_BLESS=1 cargo test writes it anew");
}

#[test]
fn options() {
    let mut text = String::from(
        "# Options\n\nEnvironment variables, read once when a program starts. A value that is not \
         understood is named on standard error and ignored.\n\n",
    );
    Options::document(&mut text).unwrap();
    check("docs/options.md", text.trim_end().to_owned().as_str());
}

#[test]
fn statistics() {
    let mut text = String::from(
        "# Statistics\n\nWhat `EBB_STATS=1` prints when a program ends (a Rust program may have been built without \
         that, by the crate's feature `stats`; it says so when asked); `ebb_stats` and `EbbMalloc::stats` tell it any time. To count takes some 20 ns for each `malloc` with its `free`, on as many threads as there are.\n\n\
         - Text (`EBB_STATS=1`) ends with the ledger's lines, which add up to resident memory; what they mean, `docs/why.md` says.\n\
         - JSON (`EBB_STATS=json`) has the same names, `version`, `mode`, `why` (that mode), `id` (what \
         picks the cache), `others` (modes that would work too), `no_percpu` (why percpu mode would not), \
         `care` (`check`, `harden` or `sample` where `EBB_CHECK` and so on are in force, else empty), `kernel` (its version), and `classes`, a list with a row for each size class in use.\n\
         - OpenMetrics (`EBB_STATS=openmetrics`) has them after `ebbmalloc_`, those of classes after \
         `ebbmalloc_class_` with the label `block_bytes`. Counters end in `_total`; times are in \
         seconds, so `user_us` is `ebbmalloc_user_seconds_total`. `ebbmalloc_info` has version, mode, why, id \
         and care.\n\n\
         Of these, `live_bytes` (of it at most `rounding_bytes` by rounding), `cached_bytes`, `pinned_bytes`, `end_bytes`, \
         `dirty_bytes`, `table_bytes` and `slab_bytes` are the ledger as far as it is known without asking the kernel: \
         what the program or a cache holds counts, whether anybody has touched it or not, so no part is less than what is resident of it. \
         Those before the tables, with `hole_bytes` and without `sampled_bytes`, are all units in use or dirty.\n\n\
         Of the whole:\n\n",
    );
    Stats::document(&mut text).unwrap();
    check("docs/stats.md", &text);
}

#[test]
fn tunables() {
    let mut text = String::from(
        "# Tunables\n\nThe constants of policy, by layer, lowest first. Each is declared once, in `tuning.rs` of its \
         layer; [architecture](architecture.md) tells what they act on. This page is generated: \
         `EBB_BLESS=1 cargo test -p ebbmalloc --test documents` writes it anew. They are no options: a program cannot set \
         them. What a user may set is in [options](options.md). After a change, measure with `cargo xtask bench --before`.\n",
    );
    document_tuning(&mut text).unwrap();
    check("docs/tuning.md", &text);
}

#[test]
fn types_for_python() {
    let mut text = String::from(
        "\"\"\"What the statistics are made of. Written by EBB_BLESS=1 cargo test, from their declaration in Rust.\"\"\"\n\n\
         from __future__ import annotations\n\nfrom typing import TypedDict\n",
    );
    let mut define = |name: &str, about: &str, numbers: &mut dyn Iterator<Item = _>| {
        writeln!(text, "\n\nclass {name}(TypedDict):\n    \"\"\"{about}\"\"\"\n").unwrap();
        for (number, help) in numbers {
            writeln!(text, "    #: {help}\n    {number}: int").unwrap();
        }
    };
    define("ClassStats", "A size class in use.", &mut ClassStats::declared());
    define("Stats", "The whole process, at one moment.", &mut Stats::declared());
    for (field, kind, help) in [
        ("version", "str", "Of the library."),
        ("mode", "str", "The front end in force: \"percpu\", \"thread\" or \"slot\"."),
        ("why", "str", "Why this one."),
        ("id", "str", "What picks the cache in percpu mode, \"mm_cid\" or \"cpu_id\"; else empty."),
        ("others", "str", "Modes that would work too."),
        ("no_percpu", "str", "Why percpu mode would not; else empty."),
        (
            "care",
            "str",
            "What is done with blocks: \"check\", \"harden\", \"sample\" (EBB_CHECK and so on); else empty.",
        ),
        ("kernel", "str", "Its version, such as \"6.18\"."),
        ("classes", "list[ClassStats]", "Those in use."),
    ] {
        writeln!(text, "    #: {help}\n    {field}: {kind}").unwrap();
    }
    check("python/src/ebbmalloc/_statistics.py", &text);
}
