// free of an address within a small block.
// expect: abort "ebbmalloc: interior pointer: 0x"
// harden: too
#include "misuse.h"

int main(void) {
    char *block = malloc(100);
    MUST_STOP(free(OPAQUE(block + 16)));
}
