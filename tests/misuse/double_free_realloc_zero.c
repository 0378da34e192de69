// A block is freed by realloc to nothing, and then by free.
#include "misuse.h"

static void misuse(size_t size) {
    char *block = malloc(size), *copy = OPAQUE(block);
    if (realloc(block, 0)) return; // It is a block still, of no bytes.
    free(copy);
    harvest(size);
}
