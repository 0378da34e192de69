// free of an address that is a whole number of units into a large block.
// expect: abort "ebbmalloc: interior pointer: 0x"
#include "misuse.h"

int main(void) {
    char *block = malloc(3 << 20);
    MUST_STOP(free(OPAQUE(block + (1 << 20))));
}
