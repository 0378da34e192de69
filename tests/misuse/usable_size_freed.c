// malloc_usable_size of a freed block.
// threat: double free
// default: silent for 16 100 1000
// default: abort "ebbmalloc: invalid free: N passed to malloc_usable_size" for 20000
// default: abort "ebbmalloc: double free: N passed to malloc_usable_size" for 200000 3000000
// thread: silent for 20000
// check: abort "ebbmalloc: double free: N passed to malloc_usable_size"
// harden: abort "ebbmalloc: double free: N passed to malloc_usable_size"
#include "misuse.h"

static void misuse(size_t size) {
    char *block = malloc(size), *copy = OPAQUE(block);
    free(block);
    OPAQUE(malloc_usable_size(copy));
}
