// free of the address one byte past the start of a block.
// expect: abort "ebbmalloc: interior pointer: 0x"
#include "misuse.h"

int main(void) {
    char *block = malloc(100);
    MUST_STOP(free(OPAQUE(block + 1)));
}
