// realloc of an address within a block.
// expect: abort "ebbmalloc: interior pointer: 0x"
#include "misuse.h"

int main(void) {
    char *block = malloc(100);
    MUST_STOP(OPAQUE(realloc(OPAQUE(block + 16), 1000)));
}
