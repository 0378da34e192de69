# Runs mimalloc's own tests, from Debian's source, with our header and library.
. "$S/source.sh"
source_of mimalloc
export PKG_CONFIG_PATH="$P/lib/pkgconfig"
for test in test-api test-api-fill test-stress; do
    # Their headers only have constants that the tests name.
    cc -O1 -DNDEBUG -DMI_DEBUG=0 -Dmi_arena_id_t=int $(pkg-config --cflags ebbmalloc_mimalloc) \
        -Imimalloc/include -pthread mimalloc/test/$test.c -o $test \
        $(pkg-config --libs ebbmalloc_mimalloc) -Wl,-rpath,"$P/lib"
done
# One test needs a block aligned at an offset, which ebbmalloc does not have.
./test-api > said 2>&1 || true
grep FAILED said
[ "$(grep -c FAILED said)" = 1 ] && grep -q 'FAILED: malloc-aligned-at2' said
./test-api-fill
./test-stress 8 20 10
echo 'served by ebbmalloc 0.1.0'
