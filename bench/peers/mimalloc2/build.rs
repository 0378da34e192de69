//! Makes the linker export mimalloc's functions under the standard names.

fn main() {
    export::export(|name| format!("mi_{name}"));
}
