// A block is freed with half its size, after blocks that have that size.
// threat: wrong size
// default: silent for 16
// default: abort "ebbmalloc: wrong size: N passed to free as a block of N bytes; it has N" for 100 1000 20000 200000 3000000
// check: abort "ebbmalloc: wrong size: N passed to free as a block of N bytes; it has N"
// harden: abort "ebbmalloc: wrong size: N passed to free as a block of N bytes; it has N"
#include "misuse.h"

static void misuse(size_t size) {
    take_row(size / 2);
    drop(row[0]);
    free_with_size(OPAQUE(malloc(size)), size / 2);
    harvest(size / 2);
    harvest(size);
}
