// A freed block is resized to the size that it had.
#include "misuse.h"

static void misuse(size_t size) {
    char *block = malloc(size), *copy = OPAQUE(block);
    free(block);
    char *same = realloc(copy, size);
    if (same) own(same, size);
    harvest(size);
}
