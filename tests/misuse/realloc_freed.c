// A freed block is resized to twice its size.
#include "misuse.h"

static void misuse(size_t size) {
    char *block = malloc(size), *copy = OPAQUE(block);
    free(block);
    char *grown = realloc(copy, 2 * size);
    if (grown) own(grown, 2 * size);
    harvest(size);
}
