// Free of an address in the upper half of the address space, where no program has memory.
// threat: invalid free
// default: abort "ebbmalloc: invalid free: N passed to free"
// check: abort "ebbmalloc: invalid free: N passed to free"
// harden: abort "ebbmalloc: invalid free: N passed to free"
#include "misuse.h"

static void misuse(size_t size) {
    free(OPAQUE((void *)(0xffff800000000000 + size / 16 * 16)));
    harvest(size);
}
