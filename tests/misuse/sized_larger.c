// A block is freed with twice its size, after blocks that have it.
// threat: wrong size
// default: exploitable for 16 100 1000
// default: abort "ebbmalloc: wrong size: N passed to free as a block of N bytes; it has N" for 20000 200000 3000000
// thread: exploitable for 20000
// slot: abort "ebbmalloc: wrong size: N passed to free as a block of N bytes; it has N" for 16 100 1000
// check: abort "ebbmalloc: wrong size: N passed to free as a block of N bytes; it has N"
// harden: abort "ebbmalloc: wrong size: N passed to free as a block of N bytes; it has N"
#include "misuse.h"

static void misuse(size_t size) {
    take_row(2 * size);
    drop(row[0]);
    take_row(size);
    int i = nearest();
    disown(row[i]);
    free_with_size(OPAQUE(row[i]), 2 * size);
    harvest(2 * size);
    harvest(size);
}
