//! The library must never be unloaded: the kernel may look at a restartable sequence's
//! descriptor in it long after the last call (docs/rseq.md).
fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
