// A secret is read from a block that was freed.
// default: leak
// check: silent
#include "misuse.h"

static void misuse(size_t size) {
    char *block = malloc(size), *copy = OPAQUE(block);
    memset(OPAQUE(block), SECRET, size);
    free(block);
    look_for_secret(copy, size);
}
