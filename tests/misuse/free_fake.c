// Free of stack memory that looks like a block of glibc with another one behind it.
// threat: invalid free
// default: abort "ebbmalloc: invalid free: N passed to free"
// check: abort "ebbmalloc: invalid free: N passed to free"
// harden: abort "ebbmalloc: invalid free: N passed to free"
#include "misuse.h"

static void misuse(size_t size) {
    size_t length = (size + 8 + 15) / 16 * 16; // with the word in front
    if (length < 32) length = 32;
    uintptr_t array[length / 8 + 16] __attribute__((aligned(16)));
    for (size_t i = 0; i < length / 8 + 16; i++) array[i] = 0;
    array[1] = length | 1;
    array[length / 8 + 1] = 32 | 1;
    array[length / 8 + 5] = 32 | 1;
    own(array, sizeof array);
    free(OPAQUE(&array[2]));
    harvest(size);
}
