// A block is freed twice, with enough frees between that it has left every cache.
// threat: double free
// default: exploitable for 16
// default: abort "ebbmalloc: invalid free: N passed to free" for 100 1000 20000
// default: abort "ebbmalloc: double free: N passed to free" for 200000 3000000
// check: abort "ebbmalloc: double free: N passed to free" for 16 100 1000 200000 3000000
// check: abort "ebbmalloc: invalid free: N passed to free" for 20000
// harden: abort "ebbmalloc: double free: N passed to free" for 16 200000 3000000
// harden: abort "ebbmalloc: invalid free: N passed to free" for 100 1000 20000
#include "misuse.h"

static void misuse(size_t size) {
    static char *blocks[2000];
    int count = many(size);
    for (int i = 0; i < count; i++) blocks[i] = malloc(size);
    char *copy = OPAQUE(blocks[count / 4]);
    for (int i = 0; i < count; i++) free(blocks[i]);
    free(copy);
    harvest(size);
}
