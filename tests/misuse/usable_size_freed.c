// malloc_usable_size of a freed block.
#include "misuse.h"

static void misuse(size_t size) {
    char *block = malloc(size), *copy = OPAQUE(block);
    free(block);
    OPAQUE(malloc_usable_size(copy));
}
