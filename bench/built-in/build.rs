//! Links the object file whose constructor turns on tcmalloc's per-CPU caches; no code refers to
//! it.

fn main() {
    if std::env::var_os("CARGO_FEATURE_TCMALLOC").is_some() {
        println!(
            "cargo::rustc-link-arg-bins=-Wl,--undefined=TCMalloc_Internal_ForceCpuCacheActivation"
        );
    }
    println!("cargo::rerun-if-changed=build.rs");
}
