// A block is freed at the address that it had before realloc moved it.
// threat: double free
// default: abort "ebbmalloc: double free: N passed to free"
// check: abort "ebbmalloc: double free: N passed to free"
// harden: abort "ebbmalloc: double free: N passed to free"
#include "misuse.h"

static void misuse(size_t size) {
    char *block = malloc(size), *copy = OPAQUE(block);
    take(size);
    for (size_t larger = size; block == copy && larger < 16 * size;)
        block = realloc(block, larger += size);
    if (block == copy) return;
    free(copy);
    harvest(size);
}
