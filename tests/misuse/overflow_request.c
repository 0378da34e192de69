// One byte is written past the requested size, then the block is freed.
// threat: overflow
// default: silent
// check: abort "ebbmalloc: overflow: N has N bytes, and byte N was written (N); seen by free"
// harden: abort "ebbmalloc: overflow: N has N bytes, and byte N was written; seen by free"
#include "misuse.h"

static void misuse(size_t size) {
    take_row(size);
    int i = nearest();
    OPAQUE(row[i])[size] = 'A';
    drop(row[i]);
    drop(row[i + 1]);
    harvest(size);
}
