# Links the object and the archive by `clang -flto` and each of $LINKERS, and checks the mode.
# Linked dynamically or statically, they must serve in the same mode as the shared library.
# $P is the installed tree, $E has the program.
mode() {
    EBB_MODE=percpu "$@" 2>&1 | sed -n 's/^served by ebbmalloc [0-9.]* mode \([a-z]*\) .*/\1/p'
}

cc "$E/hello.c" -o plain
expected=$(mode env LD_PRELOAD="$P/lib/libebbmalloc.so" ./plain)
test -n "$expected"
for linker in $LINKERS; do
    for kind in -flto=full -flto=thin -fno-lto; do
        build="clang -O1 $kind -fuse-ld=$linker"
        $build "$P/lib/ebbmalloc.o" "$E/hello.c" -o object
        $build -static -Wl,--undefined=malloc "$E/hello.c" "$P/lib/libebbmalloc.a" -o archive
        $build "$E/hello.c" -o shared -L"$P/lib" -lebbmalloc -Wl,-rpath,"$P/lib"
        for program in object archive shared; do
            got=$(mode ./$program)
            if [ "$got" != "$expected" ]; then
                echo "$build: $program: mode $got, not $expected:" >&2
                EBB_MODE=percpu ./$program >&2
                exit 1
            fi
        done
    done
    ./object
done
