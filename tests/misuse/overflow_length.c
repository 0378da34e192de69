// The word behind a block is written: glibc's length of the next block, which is doubled and freed.
// threat: overflow
// default: silent
// check: abort "ebbmalloc: overflow: N has N bytes, and byte N was written (N); seen by exit"
// harden: silent for 16 1000 20000 200000 3000000
// harden: abort "ebbmalloc: overflow: bytes before N were written; seen by free" for 100
#include "misuse.h"

static void misuse(size_t size) {
    take_row(size);
    int i = nearest();
    size_t length = 2 * (size_t)(row[i + 1] - row[i]);
    *(uintptr_t *)(OPAQUE(row[i]) + malloc_usable_size(row[i])) = length | 1;
    drop(row[i + 1]);
    harvest(length - 16);
}
