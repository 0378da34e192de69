// Free of a block by an address 8 bytes into it.
#include "misuse.h"

static void misuse(size_t size) {
    char *block = take(size);
    free(OPAQUE(block + 8));
    harvest(size);
}
