// A block is freed twice in a row.
#include "misuse.h"

static void misuse(size_t size) {
    char *block = malloc(size), *copy = OPAQUE(block);
    free(block);
    free(copy);
    harvest(size);
}
