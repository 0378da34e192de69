//! The law of layers: a file uses only files below it in `docs/architecture.md`'s order.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Lowest first. Modules in one line belong together and may use each other.
const LAYERS: [&[&str]; 41] = [
    &["os", "sync", "random", "prefetch"],
    &["text", "demangle", "chunks"],
    &["options"],
    &["size_class"],
    &["units"],
    &["seal"],
    &["streak"],
    &["cache"],
    &["rseq"],
    &["thread_slabs"],
    &["holes"],
    &["run", "span", "live"],
    &["totals"],
    &["map"],
    &["region"],
    &["beacon", "ledger", "remote"],
    &["run_tree", "pressure", "patience", "zeroing"],
    &["retention"],
    &["guards"],
    &["pages"],
    &["central", "quarantine"],
    &["heap_record"],
    &["check_table"],
    &["sample_table"],
    &["front", "transfer"],
    &["scavenger"],
    &["engine", "mode", "slabs"],
    &["backtrace"],
    &["sample"],
    &["large"],
    &["refill", "flush", "drain", "growth"],
    &["heaps", "care", "check", "harden"],
    &["scavenge"],
    &["blocks", "stats", "why"],
    &["audit"],
    &["model"],
    &["global"],
    &["heap"],
    &["per_container"],
    &["allocator_api2", "allocator_api"],
    &["lib"],
];

fn layer(module: &str) -> usize {
    LAYERS.iter().position(|layer| layer.contains(&module)).unwrap_or_else(|| {
        panic!("module {module} has no layer: add it here and to docs/architecture.md")
    })
}

/// The modules that a source text names by `crate::`.
fn used(text: &str) -> BTreeSet<&str> {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| line.split("crate::").skip(1))
        .map(|rest| rest.split(|c: char| !(c.is_ascii_lowercase() || c == '_')).next().unwrap())
        .filter(|name| !name.is_empty())
        .collect()
}

fn upward_uses(module: &str, text: &str) -> Vec<String> {
    let own = layer(module);
    let uses = used(text).into_iter().filter(|name| *name != module);
    uses.filter(|name| layer(name) > own).map(|name| format!("{module} uses {name}")).collect()
}

fn walk(folder: &Path, module: Option<&str>, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if path.is_dir() {
            walk(&path, Some(module.unwrap_or(name)), found);
        } else {
            let text = fs::read_to_string(&path).unwrap();
            found.extend(upward_uses(module.unwrap_or(name), &text));
        }
    }
}

#[test]
fn nothing_uses_a_layer_above_it() {
    let mut found = Vec::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), None, &mut found);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn an_upward_use_is_seen() {
    assert_eq!(upward_uses("central", "use crate::front::Front;"), ["central uses front"]);
    assert!(upward_uses("central", "use crate::span::Span; // crate::front").len() <= 1);
    assert!(upward_uses("front", "use crate::central::Central;").is_empty());
}
