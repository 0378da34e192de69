//! The tables in `docs/` say what the code declares. `EBB_BLESS=1 cargo test` writes them anew.

use std::{env, fs};

use ebbmalloc::{Options, Stats};

fn check(file: &str, text: &str) {
    let path = format!("{}/../../docs/{file}", env!("CARGO_MANIFEST_DIR"));
    if env::var_os("EBB_BLESS").is_some() {
        fs::write(&path, text).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(written, text, "docs/{file} is out of date; EBB_BLESS=1 cargo test writes it anew");
}

#[test]
fn options() {
    let mut text = String::from(
        "# Options\n\nEnvironment variables, read once when a program starts. A value that is not \
         understood is named on standard error and ignored.\n\n",
    );
    Options::document(&mut text).unwrap();
    check("options.md", text.trim_end().to_owned().as_str());
}

#[test]
fn statistics() {
    let mut text = String::from(
        "# Statistics\n\nWhat `EBB_STATS=1` prints when a program ends; `ebb_stats` and `EbbMalloc::stats` \
         tell it any time.\n\n\
         - JSON (`EBB_STATS=json`) has the same names, `version`, `mode`, `why` (that mode), `id` (what \
         picks the cache), `others` (modes that would work too), `no_percpu` (why percpu mode would not), \
         `kernel` (its version), and `classes`, a list with a row for each size class in use.\n\
         - OpenMetrics (`EBB_STATS=openmetrics`) has them after `ebbmalloc_`, those of classes after \
         `ebbmalloc_class_` with the label `block_bytes`. Counters end in `_total`; times are in \
         seconds, so `user_us` is `ebbmalloc_user_seconds_total`. `ebbmalloc_info` has version, mode, why and \
         id.\n\nOf the whole:\n\n",
    );
    Stats::document(&mut text).unwrap();
    check("stats.md", &text);
}
