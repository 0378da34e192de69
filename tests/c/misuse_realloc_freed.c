// realloc of a large block that was freed.
// expect: abort "ebbmalloc: double free: 0x"
// harden: too
#include "misuse.h"

int main(void) {
    char *block = malloc(3 << 20), *copy = OPAQUE(block);
    free(block);
    MUST_STOP(OPAQUE(realloc(copy, 5 << 20)));
}
