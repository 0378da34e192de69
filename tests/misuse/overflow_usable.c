// One byte is written past malloc_usable_size, then the block and its neighbor are freed.
// threat: overflow
// default: silent
// check: abort "ebbmalloc: overflow: N has N bytes, and byte N was written (N); seen by free"
// harden: abort "ebbmalloc: overflow: N has N bytes, and byte N was written; seen by free"
#include "misuse.h"

static void misuse(size_t size) {
    take_row(size);
    int i = nearest();
    OPAQUE(row[i])[malloc_usable_size(row[i])] = 'A';
    drop(row[i + 1]);
    drop(row[i]);
    harvest(size);
}
