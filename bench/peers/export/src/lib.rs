//! For the peers' build scripts: makes a `cdylib` export a C allocator under the standard names.
//!
//! Forwarding functions would cost a jump in each call (0.3 ns, which matters beside the 6 ns of a
//! tight loop). Instead the linker gives the peer's own functions second names.

use std::path::Path;
use std::{env, fs};

/// The allocator functions that programs on Linux use.
const FUNCTIONS: [&str; 8] = [
    "malloc",
    "free",
    "calloc",
    "realloc",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "malloc_usable_size",
];

/// Exports each function; the peer calls it `name_of` its name.
///
/// Works with LLD, Rust's linker on x86-64 Linux: it accepts a version script besides rustc's own.
pub fn export(name_of: impl Fn(&str) -> String) {
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let script = Path::new(&out).join("exports");
    let names = FUNCTIONS.join("; ");
    fs::write(&script, format!("{{ global: {names}; }};\n")).expect("OUT_DIR is writable");
    let argument = |text: String| println!("cargo::rustc-cdylib-link-arg=-Wl,{text}");
    argument(format!("--version-script={}", script.display()));
    for function in FUNCTIONS {
        argument(format!("--defsym={function}={}", name_of(function)));
    }
    println!("cargo::rerun-if-changed=build.rs");
}
