// A block is freed twice, and another one between.
#include "misuse.h"

static void misuse(size_t size) {
    char *block = malloc(size), *other = malloc(size), *copy = OPAQUE(block);
    free(block);
    free(other);
    free(copy);
    harvest(size);
}
