// free of a small block twice in a row.
// expect: abort "ebbmalloc: double free: 0x"
// harden: too
#include "misuse.h"

int main(void) {
    char *block = malloc(100), *copy = OPAQUE(block);
    free(block);
    MUST_STOP(free(copy));
}
