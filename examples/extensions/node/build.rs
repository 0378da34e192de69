fn main() {
    napi_build::setup();
    // Node may unload an addon with its worker, but an allocator must stay (docs/extensions.md).
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
