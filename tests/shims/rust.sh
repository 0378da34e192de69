# Builds Rust programs whose crates call jemalloc and mimalloc by name, with the shims in place of
# the C libraries that these crates bring. $CARGO is cargo.
cp -r "$S/rust/." .
PATH="$(dirname "$CARGO"):$PATH"
# What a build script of a crate with `links = "mimalloc"` would say.
mkdir .cargo
cat > .cargo/config.toml <<END
[target.$("$CARGO" -vV | sed -n 's/^host: //p').mimalloc]
rustc-link-lib = ["ebbmalloc_mimalloc"]
rustc-link-search = ["$P/lib"]
END
export JEMALLOC_OVERRIDE="$P/lib/libebbmalloc_jemalloc.so" LD_LIBRARY_PATH="$P/lib"
"$CARGO" build
for shim in jemalloc mimalloc; do
    ldd "target/debug/$shim" | grep -q "libebbmalloc_$shim.so.0 => $P/lib/"
    "target/debug/$shim"
    EBB_STATS=1 "target/debug/$shim" > /dev/null 2> said
    grep -q '^ebbmalloc: 0.1.0 mode ' said
done
