fn main() {
    napi_build::setup();
    // Node may unload an addon with its worker, but an allocator must stay (docs/extensions.md).
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
