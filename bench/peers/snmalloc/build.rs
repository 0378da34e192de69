fn main() {
    export::export(|name| format!("sn_{name}"));
}
