// A block is freed, handed out again, and freed by its first owner once more.
// threat: double free
// default: exploitable
// check: abort "ebbmalloc: double free: N passed to free"
// harden: abort "ebbmalloc: double free: N passed to free"
#include "misuse.h"

static void misuse(size_t size) {
    char *block = malloc(size), *copy = OPAQUE(block);
    free(block);
    take(size);
    free(copy);
    harvest(size);
}
