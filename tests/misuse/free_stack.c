// Free of an array on the stack.
// threat: invalid free
// default: abort "ebbmalloc: invalid free: N passed to free"
// check: abort "ebbmalloc: invalid free: N passed to free"
// harden: abort "ebbmalloc: invalid free: N passed to free"
#include "misuse.h"

static void misuse(size_t size) {
    char array[size + 64] __attribute__((aligned(16)));
    own(array, size + 64);
    memset(OPAQUE((char *)array), 'A', size + 64);
    free(OPAQUE((char *)array + 16));
    harvest(size);
}
