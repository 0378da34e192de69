//! Checks that the tables in `docs/` and Python's types say what the code declares; `EBB_BLESS=1`
//! rewrites them.

use std::fmt::Write;
use std::{env, fs};

use ebbmalloc::internals::{Options, TUNABLES, UNIT};
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
         understood is ignored, with a message on standard error. Set-user-ID programs ignore all. \
         (Generated from their \
         declarations: [how](../CONTRIBUTING.md#i-changed-x-so-i-run-y).)\n\n",
    );
    for (variable, purpose, values) in Options::TABLE {
        let purpose = purpose.trim();
        write!(text, "## `{variable}`\n\n{purpose}\n\n| value | meaning |\n|---|---|\n").unwrap();
        for (words, help) in *values {
            let shown = |word| format!(" `{}`", if word == "" { "(empty)" } else { word });
            let words: String = words.split('|').skip(1).map(shown).collect();
            writeln!(text, "|{words} | {} |", help.trim()).unwrap();
        }
        text.push('\n');
    }
    check("docs/options.md", text.trim_end());
}

/// The text before the tables of statistics.
const STATISTICS: &str = "\
# Statistics\n\n\
`EBB_STATS=1` prints them when a program ends. `ebb_stats` in C and `EbbMalloc::stats` in Rust\n\
return them at any time. Counting costs some 20 ns for each `malloc` with its `free`, on any\n\
number of threads. (Generated: [how](../CONTRIBUTING.md#i-changed-x-so-i-run-y).)\n\n\
| format | contents |\n\
|---|---|\n\
| `EBB_STATS=1` | text; ends with the lines of [`ebb why`](why.md), which add up to resident \
memory |\n\
| `EBB_STATS=json` | the names below, and `version`, `mode`, `why` (the reason for the mode), \
`id` (what selects the cache), `others` (other modes that would work), `no_percpu` (why percpu \
mode would not), `care` (`check`, `harden`, `sample` or empty), `kernel` (its version), `classes` \
(a row for each size class in use) |\n\
| `EBB_STATS=openmetrics` | the names after `ebbmalloc_`, those of classes after \
`ebbmalloc_class_` with the label `block_bytes`; counters end in `_total`, times are in seconds \
(`user_us` is `ebbmalloc_user_seconds_total`); `ebbmalloc_info` has version, mode, why, id and \
care |\n\n\
`live_bytes` (at most `rounding_bytes` of it is rounding), `cached_bytes`, `pinned_bytes`,\n\
`end_bytes`, `dirty_bytes`, `table_bytes` and `slab_bytes` are upper bounds of what is resident,\n\
as they count pages that were never touched too. The first five, plus `hole_bytes`, minus\n\
`sampled_bytes`, are all units that are in use or dirty.\n\n\
Of the whole process (names end in `_bytes` or `_us`, which are microseconds, else they \
count):\n\n";

#[test]
fn statistics() {
    let mut text = String::from(STATISTICS);
    Stats::document(&mut text).unwrap();
    check("docs/stats.md", &text);
}

fn bytes(bytes: u64) -> String {
    match bytes.trailing_zeros() {
        30.. => format!("{} GiB", bytes >> 30),
        20.. => format!("{} MiB", bytes >> 20),
        10.. => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} bytes"),
    }
}

#[test]
fn tunables() {
    let mut text = String::from(
        "# Tunables\n\nThe constants of policy, by layer, lowest first. Each is declared in its \
         layer's `tuning.rs`, with its reason. What they act on: \
         [architecture](architecture.md#policies). Programs cannot set them, only \
         [options](options.md). After a change, write this page anew by `EBB_BLESS=1 cargo test -p \
         ebbmalloc --test documents`, and [measure](../bench/README.md#judging-a-change).\n",
    );
    for (layer, tunables) in TUNABLES {
        writeln!(text, "\n## {layer}\n\n| name | value | what | decision |").unwrap();
        text += "|---|--:|---|---|\n";
        for tunable in tunables {
            let (value, unit) = (tunable.value, tunable.unit);
            let value = match unit {
                "bytes" => bytes(value),
                "units" => bytes(value * UNIT as u64),
                share if share.starts_with("of ") => format!("1/{value} {share}"),
                _ => format!("{value} {unit}"),
            };
            let (name, decision) = (tunable.name, tunable.decision);
            // The first sentence; the reason stands beside the constant.
            let what = tunable.about.trim().split(". ").next().unwrap_or_default();
            let what = what.trim_end_matches('.');
            writeln!(text, "| `{name}` | {value} | {what} | {decision:04} |").unwrap();
        }
    }
    check("docs/tuning.md", &text);
}

#[test]
fn types_for_python() {
    let mut text = String::from(
        "\"\"\"The statistics. Generated by EBB_BLESS=1 cargo test from their declaration in \
         Rust.\"\"\"\n\n\
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
        ("version", "str", "Version of the library."),
        ("mode", "str", "The front end in force: \"percpu\", \"thread\" or \"slot\"."),
        ("why", "str", "The reason for the mode."),
        (
            "id",
            "str",
            "What selects the cache in percpu mode, \"mm_cid\" or \"cpu_id\"; else empty.",
        ),
        ("others", "str", "Other modes that would work."),
        ("no_percpu", "str", "Why percpu mode would not work; else empty."),
        ("care", "str", "The safety mode: \"check\", \"harden\" or \"sample\"; else empty."),
        ("kernel", "str", "Version of the kernel, such as \"6.18\"."),
        ("classes", "list[ClassStats]", "The size classes in use."),
    ] {
        writeln!(text, "    #: {help}\n    {field}: {kind}").unwrap();
    }
    check("python/src/ebbmalloc/_statistics.py", &text);
}
