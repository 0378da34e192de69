// A block is freed with twice its size, after blocks that have that size.
// threat: wrong size
// default: abort "ebbmalloc: wrong size: N passed to free as a block of N bytes; it has N"
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
