fn main() {
    export::export(|name| format!("rp{name}"));
}
