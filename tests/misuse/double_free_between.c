// A block is freed twice, with a free of another block between.
// threat: double free
// default: abort "ebbmalloc: double free: N passed to free" for 16 100 1000 200000 3000000
// default: abort "ebbmalloc: invalid free: N passed to free" for 20000
// thread: exploitable for 16 100 1000 20000
// check: abort "ebbmalloc: double free: N passed to free"
// harden: abort "ebbmalloc: double free: N passed to free"
#include "misuse.h"

static void misuse(size_t size) {
    char *block = malloc(size), *other = malloc(size), *copy = OPAQUE(block);
    free(block);
    free(other);
    free(copy);
    harvest(size);
}
