//! The library must never be unloaded: the kernel may look at a restartable sequence's
//! descriptor in it long after the last call (docs/rseq.md).
//!
//! Its constructors run before those of all other libraries. Their hooks around forks then come
//! after its own, so they run while its locks are free. And no function of the C library that takes
//! a lock and then allocates can be the first to allocate: set-up may want that lock.
fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
    println!("cargo:rerun-if-changed=build.rs");
}
