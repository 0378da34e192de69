// realloc always moves, so a pointer from before it is seen.
// expect: report "ebbmalloc: double free: 0x"
// says: "passed to realloc"
// check: only
#include "misuse.h"

int main(void) {
    char *block = malloc(100), *copy = OPAQUE(block);
    CHECK(OPAQUE(realloc(block, 101)) != NULL);
    MUST_STOP(OPAQUE(realloc(copy, 102)));
}
