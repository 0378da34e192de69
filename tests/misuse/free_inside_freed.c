// Free of an address inside a block that is already free.
// threat: invalid free
// default: abort "ebbmalloc: interior pointer: N passed to free" for 16 100 1000
// default: abort "ebbmalloc: invalid free: N passed to free" for 20000 200000 3000000
// thread: abort "ebbmalloc: interior pointer: N passed to free" for 20000
// check: abort "ebbmalloc: interior pointer: N passed to free" for 16 100 1000 20000 200000
// check: abort "ebbmalloc: invalid free: N passed to free" for 3000000
// harden: abort "ebbmalloc: interior pointer: N passed to free" for 16 100 1000 20000
// harden: abort "ebbmalloc: invalid free: N passed to free" for 200000 3000000
#include "misuse.h"

static void misuse(size_t size) {
    char *block = malloc(2 * size), *inside = OPAQUE(block + (size + 15) / 16 * 16 / 2);
    free(block);
    free(inside);
    harvest(size);
    harvest(2 * size);
}
