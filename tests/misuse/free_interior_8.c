// Free of an address 8 bytes into a block.
// threat: invalid free
// default: abort "ebbmalloc: interior pointer: N passed to free"
// check: abort "ebbmalloc: interior pointer: N passed to free"
// harden: abort "ebbmalloc: interior pointer: N passed to free"
#include "misuse.h"

static void misuse(size_t size) {
    char *block = take(size);
    free(OPAQUE(block + 8));
    harvest(size);
}
