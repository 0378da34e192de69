// Free of an address in the upper half, where no program has anything.
#include "misuse.h"

static void misuse(size_t size) {
    free(OPAQUE((void *)(0xffff800000000000 + size / 16 * 16)));
    harvest(size);
}
