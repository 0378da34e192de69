# cargo and rustc build a workspace with generics, a macro and a build script, and run its tests.
# packages: cargo rustc
# also: harden
# version: rustc --version
# timeout: 600
# when: long
. "$(dirname "$0")/on.sh"

mkdir -p lib/src app/src
echo '[workspace]
members = ["lib", "app"]' > Cargo.toml
echo '[package]
name = "lib"
version = "0.1.0"
edition = "2021"' > lib/Cargo.toml
echo '[package]
name = "app"
version = "0.1.0"
edition = "2021"
[dependencies]
lib = { path = "../lib" }' > app/Cargo.toml
cat > app/build.rs <<'RS'
fn main() {
    let out = std::env::var("OUT_DIR").unwrap();
    let line = |i| format!("pub fn f{i}(x: u64) -> u64 {{ x.wrapping_mul({i}) ^ {i} }}\n");
    let text: String = (0..300).map(line).collect();
    std::fs::write(format!("{out}/made.rs"), text).unwrap();
}
RS
cat > app/src/main.rs <<'RS'
mod made { #![allow(dead_code)] include!(concat!(env!("OUT_DIR"), "/made.rs")); }
fn main() {
    let counts = lib::count((0..20000u64).map(|i| format!("w{}", i * 31 % 997)));
    println!("{} {:?} {}", counts.len(), counts.iter().max(), made::f7(made::f299(5)));
}
RS
cat > lib/src/lib.rs <<'RS'
use std::collections::BTreeMap;
pub fn count<K: Ord>(items: impl Iterator<Item = K>) -> BTreeMap<K, usize> {
    items.fold(BTreeMap::new(), |mut map, item| { *map.entry(item).or_default() += 1; map })
}
macro_rules! tests { ($($name:ident $n:literal)*) => { $(#[test] fn $name() {
    assert_eq!(count((0..$n).map(|i| i % 10)).len(), 10);
})* } }
tests! { a 10 b 20 c 30 d 400 e 5000 }
RS
on cargo build --quiet --offline --release
on target/release/app
on cargo test --quiet --offline 2> log | grep -E '^test result: ok. 5 passed' | cut -d ';' -f 1
cat log >&2
