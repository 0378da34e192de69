// free of an address within a large block.
// expect: abort "ebbmalloc: interior pointer: 0x"
// harden: too
#include "misuse.h"

int main(void) {
    char *block = malloc(3 << 20);
    MUST_STOP(free(OPAQUE(block + 4096)));
}
