// A block is freed twice, with frees of 20 others between.
// threat: double free
// default: abort "ebbmalloc: double free: N passed to free" for 16 100 1000 200000 3000000
// default: abort "ebbmalloc: invalid free: N passed to free" for 20000
// thread: exploitable for 16 100 1000
// check: abort "ebbmalloc: double free: N passed to free"
// harden: abort "ebbmalloc: double free: N passed to free" for 16 100 1000 200000 3000000
// harden: abort "ebbmalloc: invalid free: N passed to free" for 20000
#include "misuse.h"

enum { OTHERS = 20 };

static void misuse(size_t size) {
    char *block = malloc(size), *others[OTHERS], *copy = OPAQUE(block);
    for (int i = 0; i < OTHERS; i++) others[i] = malloc(size);
    free(block);
    for (int i = 0; i < OTHERS; i++) free(others[i]);
    free(copy);
    harvest(size);
}
