// Free of an address behind the last block, where a block could begin but none was allocated yet.
// threat: invalid free
// default: exploitable for 16 100
// default: abort "ebbmalloc: double free: N passed to free" for 1000
// default: abort "ebbmalloc: invalid free: N passed to free" for 20000 200000 3000000
// thread: exploitable for 1000
// check: abort "ebbmalloc: double free: N passed to free" for 16 100 1000
// check: abort "ebbmalloc: invalid free: N passed to free" for 20000 200000 3000000
// harden: abort "ebbmalloc: double free: N passed to free" or abort "ebbmalloc: invalid free: N passed to free"
#include "misuse.h"

static void misuse(size_t size) {
    take_row(size);
    int i = nearest();
    free(OPAQUE(row[ROW - 1] + 3 * (row[i + 1] - row[i])));
    harvest(size);
}
