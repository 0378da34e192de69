// A secret is read from a block that was freed.
// threat: secrets
// default: leak for 16 100 1000 20000
// default: leak or silent for 200000 3000000
// check: silent
// harden: silent for 16 100 1000 20000
// harden: segv for 200000 3000000
#include "misuse.h"

static void misuse(size_t size) {
    char *block = malloc(size), *copy = OPAQUE(block);
    memset(OPAQUE(block), SECRET, size);
    free(block);
    look_for_secret(copy, size);
}
