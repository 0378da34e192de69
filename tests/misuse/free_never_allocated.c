// Free of an address behind the last block, at which the next could begin, but was not handed out.
// threat: invalid free
// default: abort "ebbmalloc: double free: N passed to free" for 16 100 1000 20000
// default: abort "ebbmalloc: invalid free: N passed to free" for 200000 3000000
// check: abort "ebbmalloc: double free: N passed to free" for 16 100 1000 20000
// check: abort "ebbmalloc: invalid free: N passed to free" for 200000 3000000
#include "misuse.h"

static void misuse(size_t size) {
    take_row(size);
    int i = nearest();
    free(OPAQUE(row[ROW - 1] + (row[i + 1] - row[i])));
    harvest(size);
}
