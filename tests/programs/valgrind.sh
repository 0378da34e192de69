# valgrind, which has no restartable sequences: the library must choose slot mode, say so and work.
# packages: valgrind gcc libc6-dev
# version: valgrind --version
# timeout: 600
# when: long
. "$(dirname "$0")/on.sh"

seq 5000 | awk '{ print $1 * 7919 % 5003 }' > numbers
# memcheck replaces any malloc but not reallocarray, unless an option tells it to replace none.
for tool in none "memcheck --soname-synonyms=somalloc=nouserintercepts"; do
    # A tool's child processes run outside it, in the tested mode; inside it no mode is requested.
    on valgrind --quiet --tool=$tool env sort -n --parallel=2 numbers | digest
    on valgrind --quiet --tool=$tool --trace-children=yes \
        env -u EBB_MODE EBB_EXPLAIN=1 sort -n numbers 2> log | digest
    cat log >&2
    case $LIBRARY in
        *libebbmalloc.so)
            grep -q 'ebbmalloc: .* mode slot (' log && echo "${tool%% *}: as expected" ||
                echo "${tool%% *}: not in slot mode"
            ;;
        *) echo "${tool%% *}: as expected" ;;
    esac
done
