// Free of a block of 32 bytes more by an address 16 bytes into it, aligned as blocks are.
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
