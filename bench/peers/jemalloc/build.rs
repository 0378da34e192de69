//! Makes the linker export jemalloc's functions under the standard names.

fn main() {
    export::export(|name| format!("_rjem_{name}"));
}
