fn main() {
    napi_build::setup();
    // Node may unload an addon with the worker that loaded it; an allocator must stay (docs/extensions.md).
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
