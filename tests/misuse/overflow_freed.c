// The attacker's addresses are written 64 bytes past a block's end, over its freed neighbor.
// threat: overflow
// default: silent
// check: abort "ebbmalloc: write after free: N had N bytes, and byte N was written (N); seen by exit" or abort "ebbmalloc: overflow: N has N bytes, and byte N was written (N); seen by exit"
// harden: abort "ebbmalloc: write after free: byte N of N was written; seen by a check of freed blocks" or abort "ebbmalloc: write after free: byte N of N was written; seen by malloc" for 16 100 1000
// harden: silent for 20000 200000 3000000
#include "misuse.h"

static void misuse(size_t size) {
    take_row(size);
    int i = nearest();
    drop(row[i + 2]);
    drop(row[i + 1]);
    uintptr_t *behind = (uintptr_t *)(OPAQUE(row[i]) + malloc_usable_size(row[i]) / 8 * 8);
    for (int word = 0; word < 8; word++) behind[word] = (uintptr_t)&target[64];
    harvest(size);
}
