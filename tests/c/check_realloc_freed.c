// Use of a pointer from before a realloc is seen, because realloc always moves in check mode.
// expect: report "ebbmalloc: double free: 0x"
// says: "passed to realloc"
// check: only
#include "misuse.h"

int main(void) {
    char *block = malloc(100), *copy = OPAQUE(block);
    CHECK(OPAQUE(realloc(block, 101)) != NULL);
    MUST_STOP(OPAQUE(realloc(copy, 102)));
}
