fn main() {
    export::export(|name| format!("_rjem_{name}"));
}
