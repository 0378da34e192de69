// Free of an address inside of a block that is free already.
#include "misuse.h"

static void misuse(size_t size) {
    char *block = malloc(2 * size), *inside = OPAQUE(block + (size + 15) / 16 * 16 / 2);
    free(block);
    free(inside);
    harvest(size);
    harvest(2 * size);
}
