// The words before a block are written, doubling its length in glibc, then the block is freed.
// threat: overflow
// default: silent
// check: abort "ebbmalloc: overflow: N has N bytes, and byte N was written (N); seen by exit"
// harden: abort "ebbmalloc: overflow: bytes before N were written; seen by free" for 16 100 1000 20000
// harden: segv for 200000 3000000
#include "misuse.h"

static void misuse(size_t size) {
    take_row(size);
    int i = nearest();
    size_t length = 2 * (size_t)(row[i + 1] - row[i]);
    uintptr_t *front = (uintptr_t *)OPAQUE(row[i + 1]) - 2;
    front[0] = 0;
    front[1] = length | 1;
    drop(row[i + 1]);
    harvest(length - 16);
}
