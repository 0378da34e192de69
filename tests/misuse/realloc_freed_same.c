// A freed block is resized to its old size.
// threat: double free
// default: abort "ebbmalloc: double free: N passed to realloc" for 16 100 1000 200000 3000000
// default: abort "ebbmalloc: invalid free: N passed to realloc" for 20000
// thread: abort "ebbmalloc: double free: N passed to realloc" for 20000
// check: abort "ebbmalloc: double free: N passed to realloc"
// harden: abort "ebbmalloc: double free: N passed to realloc"
#include "misuse.h"

static void misuse(size_t size) {
    char *block = malloc(size), *copy = OPAQUE(block);
    free(block);
    char *same = realloc(copy, size);
    if (same) own(same, size);
    harvest(size);
}
