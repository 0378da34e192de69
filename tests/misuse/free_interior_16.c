// Free of an address 16 bytes into a block that is 32 bytes larger: aligned like a block.
// threat: invalid free
// default: abort "ebbmalloc: interior pointer: N passed to free"
// check: abort "ebbmalloc: interior pointer: N passed to free"
// harden: abort "ebbmalloc: interior pointer: N passed to free"
#include "misuse.h"

static void misuse(size_t size) {
    char *block = take(size + 32);
    free(OPAQUE(block + 16));
    harvest(size);
    harvest(size + 32);
}
