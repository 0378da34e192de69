// A block is freed by realloc to size 0, then by free.
// threat: double free
// default: abort "ebbmalloc: double free: N passed to free" for 16 100 1000 200000 3000000
// default: abort "ebbmalloc: invalid free: N passed to free" for 20000
// thread: abort "ebbmalloc: double free: N passed to free" for 20000
// check: abort "ebbmalloc: double free: N passed to free"
// harden: abort "ebbmalloc: double free: N passed to free"
#include "misuse.h"

static void misuse(size_t size) {
    char *block = malloc(size), *copy = OPAQUE(block);
    if (realloc(block, 0)) return; // It is still a block, of 0 bytes.
    free(copy);
    harvest(size);
}
