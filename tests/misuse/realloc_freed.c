// A freed block is resized to twice its size.
// threat: double free
// default: abort "ebbmalloc: double free: N passed to free" for 16 100 1000
// default: abort "ebbmalloc: invalid free: N passed to realloc" for 20000
// default: abort "ebbmalloc: double free: N passed to realloc" for 200000 3000000
// thread: abort "ebbmalloc: double free: N passed to free" for 20000
// check: abort "ebbmalloc: double free: N passed to realloc"
// harden: abort "ebbmalloc: double free: N passed to realloc"
#include "misuse.h"

static void misuse(size_t size) {
    char *block = malloc(size), *copy = OPAQUE(block);
    free(block);
    char *grown = realloc(copy, 2 * size);
    if (grown) own(grown, 2 * size);
    harvest(size);
}
