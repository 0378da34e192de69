fn main() {
    export::export(|name| format!("mi_{name}"));
}
