//! Makes the linker export rpmalloc's functions under the standard names.

fn main() {
    export::export(|name| format!("rp{name}"));
}
