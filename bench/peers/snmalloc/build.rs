//! Makes the linker export snmalloc's functions under the standard names.

fn main() {
    export::export(|name| format!("sn_{name}"));
}
