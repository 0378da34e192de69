// A block is freed twice, and between its second word is cleared, where glibc marks free blocks.
// threat: double free
// default: abort "ebbmalloc: double free: N passed to free" for 16 100 1000 200000 3000000
// default: abort "ebbmalloc: invalid free: N passed to free" for 20000
// thread: abort "ebbmalloc: double free: N passed to free" for 20000
// check: abort "ebbmalloc: double free: N passed to free"
// harden: abort "ebbmalloc: double free: N passed to free" for 16 100 1000 20000
// harden: segv for 200000 3000000
#include "misuse.h"

static void misuse(size_t size) {
    char *block = malloc(size), *copy = OPAQUE(block);
    free(block);
    ((uintptr_t *)copy)[1] = 0;
    free(copy);
    harvest(size);
}
