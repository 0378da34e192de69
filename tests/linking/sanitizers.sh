# Gets the library in each way into programs that $COMPILER builds with each of $SANITIZERS.
# The program works, or one line says why not. Addresses are random, so each way runs several times.
# $P is the installed tree, $L has the program.
run() {
    for turn in $turns; do
        code=0
        timeout -s KILL 30 env "$@" > out 2> said || code=$?
        if [ $code = 0 ] && [ "$(cat out)" = done ] && ! [ -s said ]; then continue; fi
        reason='^ebbmalloc: [A-Z][a-z]*Sanitizer needs a malloc of its own'
        reason="$reason|ASan runtime does not come first"
        lines=$(grep -vc '^Aborted' said)
        if [ $code != 0 ] && [ "$lines" = 1 ] && grep -Eq "$reason" said; then continue; fi
        echo "$COMPILER $sanitizer: $*: exit code $code:" >&2
        head -n 5 said >&2
        exit 1
    done
}

for sanitizer in $SANITIZERS; do
    build="$COMPILER -g -O1 -fsanitize=$sanitizer"
    $build "$L/sanitized.c" -o plain
    $build "$L/sanitized.c" -o shared -L"$P/lib" -lebbmalloc -Wl,-rpath,"$P/lib"
    $build "$P/lib/ebbmalloc.o" "$L/sanitized.c" -o object
    $build "$L/sanitized.c" -o static -Wl,--undefined=malloc "$P/lib/libebbmalloc.a"
    turns='1 2 3'
    for setting in A=0 EBB_MODE=thread EBB_CHECK=1 EBB_HARDEN=1; do
        run "$setting" LD_PRELOAD="$P/lib/libebbmalloc.so" ./plain
        for program in shared object static; do run "$setting" ./$program; done
        turns=1
    done
    # That the sanitizer provides malloc is no reason to stop.
    ./shared
    ./static
    if ./object 2> said; then exit 1; fi
    grep '^ebbmalloc: ' said
done > ran
# UndefinedBehaviorSanitizer does not replace malloc.
$COMPILER -fsanitize=undefined "$P/lib/ebbmalloc.o" "$E/hello.c" -o hello
./hello
