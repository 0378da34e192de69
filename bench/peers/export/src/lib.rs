//! For the peers' build scripts: lets a `cdylib` export a C allocator under the standard names.
//!
//! Forwarding functions would cost a jump a call (0.3 ns, which counts beside the 6 ns that a tight
//! loop takes). Instead the linker gives the peer's own functions second names.

use std::path::Path;
use std::{env, fs};

/// What programs on Linux use of an allocator.
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

/// Exports each function as the one that the peer calls `name_of` it.
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
