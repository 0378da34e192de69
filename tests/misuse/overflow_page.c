// A page is written past the end of a block, then all blocks are freed.
// threat: overflow
// default: silent
// check: abort "ebbmalloc: overflow: N has N bytes, and byte N was written (N); seen by free"
// harden: abort "ebbmalloc: overflow: N was written past its end, over its seal; seen by free" for 16 100 1000 20000
// harden: segv for 200000 3000000
#include "misuse.h"

static void misuse(size_t size) {
    take_row(size);
    int i = nearest();
    memset(OPAQUE(row[i]) + size, 'A', 4096);
    for (int j = 0; j < ROW; j++) drop(row[j]);
    harvest(size);
}
