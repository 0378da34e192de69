// The attacker's address is written to freed blocks' first words, where many allocators link them.
// threat: write after free
// default: silent
// check: abort "ebbmalloc: write after free: N had N bytes, and byte N was written (N); seen by exit" for 16 100 1000
// check: abort "ebbmalloc: write after free: N had N bytes, and byte N was written (N); seen by a check of freed blocks" for 20000 200000 3000000
// harden: abort "ebbmalloc: write after free: byte N of N was written; seen by a check of freed blocks" for 16 100 1000
// harden: abort "ebbmalloc: write after free: byte N of N was written; seen by malloc" for 20000
// harden: segv for 200000 3000000
#include "misuse.h"

static void misuse(size_t size) {
    take_row(size);
    for (int i = 0; i < 8; i++) drop(row[4 * i]);
    for (int i = 0; i < 8; i++) *(uintptr_t *)OPAQUE(row[4 * i]) = (uintptr_t)&target[64];
    harvest(size);
}
