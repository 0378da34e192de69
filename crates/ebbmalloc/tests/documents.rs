//! Checks that the tables in `docs/` and Python's types say what the code declares; `EBB_BLESS=1`
//! rewrites them. What watches the statistics may name declared ones only.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::process::Command;
use std::{env, fs};

use ebbmalloc::internals::{Options, TUNABLES, UNIT};
use ebbmalloc::{ClassStats, EbbMalloc, Stats};

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
        "# Options\n\nEnvironment variables, read once when a program starts. Set-user-ID programs \
         ignore them. A program may also set options in its code: by the methods of `EbbMalloc` in \
         [Rust](rust.md#options), the symbol `ebb_options` in [C](c.md#options), an option of the \
         [Zig](zig.md#options) package, arguments of `run` in [Python](python.md#options). The \
         environment has the last word unless the program fixes its options.\n\n\
         - A **switch** is on by `1`, `on`, `true` or `yes`, and off by `0`, `off`, `false`, `no` \
         or an empty value, where the tables say `1` and `0`.\n\
         - A **size** is a number with a unit or none: `512M`, `512Mi` and `512MiB` are 512 times \
         1,048,576 bytes, `512MB` is 512 times 1,000,000; K, G and T likewise. `1.5GiB` is a size \
         too.\n\
         - A **mistake** is told on standard error: a name that does not exist, with the nearest \
         one that does, a value that is not understood, and options that exclude each other. An \
         option of *safety* with a value that is not understood ends the program, with exit code \
         78, before it runs without it.\n\n\
         (Generated from their declarations: \
         [how](../CONTRIBUTING.md#i-changed-x-so-i-run-y).)\n\n",
    );
    for (variable, purpose, is_strict, values) in Options::TABLE {
        let purpose = purpose.trim();
        let safety = if *is_strict { " An option of safety." } else { "" };
        write!(text, "## `{variable}`\n\n{purpose}{safety}\n\n").unwrap();
        text += "| value | meaning |\n|---|---|\n";
        for (words, help) in *values {
            let shown =
                |word: &str| format!(" `{}`", if word.is_empty() { "(empty)" } else { word });
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
`EBB_STATS=1` prints them when a program ends; `EBB_STATS_TO=DIR/%p` writes them to a file for\n\
each process. `ebb_stats` in C, `EbbMalloc::stats` in Rust and `ebbmalloc.stats` in Python return\n\
them at any time. Counting costs some 20 ns for each `malloc` with its `free`, on any number of\n\
threads. (Generated: [how](../CONTRIBUTING.md#i-changed-x-so-i-run-y).)\n\n\
| format | contents |\n\
|---|---|\n\
| `EBB_STATS=1` | text; begins with the mode, the safety mode, the limit, and the name and \
number of the process; ends with the lines of [`ebb why`](why.md), which add up to resident \
memory |\n\
| `EBB_STATS=json` | the names below, and `version`, `mode`, `why` (the reason for the mode), \
`id` (what selects the cache), `others` (other modes that would work), `no_percpu` (why percpu \
mode would not), `care` (`check`, `harden`, `sample` or empty), `kernel` (its version), `program` \
and `pid` (the process), `classes` \
(a row for each size class in use) |\n\
| `EBB_STATS=openmetrics` | the names after `ebbmalloc_`, those of classes after \
`ebbmalloc_class_` with the label `block_bytes`; counters end in `_total`, times are in seconds \
(`user_us` is `ebbmalloc_user_seconds_total`); `ebbmalloc_info` has version, mode, why, id, \
care, program and pid. Type `application/openmetrics-text; version=1.0.0` |\n\
| `EBB_STATS=prometheus` | the same samples in the older format, `text/plain; version=0.0.4`: only \
gauges and counters, and no end, so it can be appended to a page of other metrics |\n\n\
A program serves the last two: `ebb_stats(EBB_STATS_PROMETHEUS, …)` in C,\n\
`EbbMalloc::stats().write_prometheus(…)` in Rust, `ebbmalloc.metrics()` in Python.\n\n\
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
        ("program", "str", "The name of the program's file."),
        ("pid", "int", "The number of the process."),
        ("classes", "list[ClassStats]", "The size classes in use."),
    ] {
        writeln!(text, "    #: {help}\n    {field}: {kind}").unwrap();
    }
    check("python/src/ebbmalloc/_statistics.py", &text);
}

/// The names of metrics in a text.
fn metrics(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("ebbmalloc_"))
        .collect()
}

#[test]
fn dashboard_and_alerts_name_metrics_that_exist() {
    let mut page = String::new();
    EbbMalloc::stats().write_prometheus(&mut page).unwrap();
    let declared: BTreeSet<_> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(declared.contains("ebbmalloc_live_bytes"), "{declared:?}");
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    for (file, least) in [
        ("share/ebbmalloc/dashboard.json", 20),
        ("share/ebbmalloc/alerts.yml", 6),
        ("tests/prometheus/alerts.test.yml", 6),
    ] {
        let text = fs::read_to_string(format!("{root}/{file}")).unwrap();
        let named = metrics(&text);
        assert!(named.len() >= least, "{file}: {named:?}");
        let unknown: Vec<_> = named.difference(&declared).collect();
        assert!(unknown.is_empty(), "{file} names {unknown:?}, which no page has");
    }
    // A renamed metric is seen.
    assert!(!declared.is_superset(&metrics("sum(ebbmalloc_lives_bytes{job=~\"a\"})")));

    let check = ["check", "rules", "share/ebbmalloc/alerts.yml"];
    let test = ["test", "rules", "tests/prometheus/alerts.test.yml"];
    for arguments in [check, test] {
        let mut promtool = Command::new("promtool");
        let Ok(output) = promtool.args(arguments).current_dir(root).output() else {
            eprintln!("SKIPPED: promtool (Debian's package prometheus) is not installed");
            return;
        };
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
}
