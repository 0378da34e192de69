//! The tables in `docs/` say what the code declares. `EBB_BLESS=1 cargo test` writes them anew.

use std::fmt::Write;
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
        "# Statistics\n\nWhat `EBB_STATS=1` prints when a program ends, `EBB_STATS=json` as one \
         line of JSON. JSON has the same names, `version`, `mode`, `why` (that mode) and `id` (what \
         picks the cache), and `classes`, a list with a row for each size class in use.\n\n",
    );
    Stats::document(&mut text).unwrap();
    writeln!(
        text,
        "\nA row of a size class: `block_bytes`, `spans`, `live`, `cached` and `free` blocks, \
         `refills` of caches and `flushes` from them."
    )
    .unwrap();
    check("stats.md", &text);
}
