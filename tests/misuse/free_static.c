// Free of an array in static memory.
// threat: invalid free
// default: abort "ebbmalloc: invalid free: N passed to free"
// check: abort "ebbmalloc: invalid free: N passed to free"
// harden: abort "ebbmalloc: invalid free: N passed to free"
#include "misuse.h"

static char array[3 << 20 | 64] __attribute__((aligned(64)));

static void misuse(size_t size) {
    own(array, sizeof array);
    free(OPAQUE(array + 16));
    harvest(size);
}
