// A list of blocks still in use at exit, by call stack, most bytes first; the exit code stays.
// expect: exit 3
// says: "ebbmalloc: still held at exit: "
// says: "  50000 bytes in 5 blocks, allocated here:"
// says: "  1000 bytes in 1 blocks, allocated here:"
// says: "(keeps+0x"
// build: gcc -rdynamic
// check: only
#include "check.h"
#include <stdlib.h>

__attribute__((noinline)) void *keeps(void) { return OPAQUE(malloc(10000)); }
__attribute__((noinline)) void *keeps_one(void) { return OPAQUE(malloc(1000)); }

int main(void) {
    for (int i = 0; i < 5; i++) CHECK(keeps() != NULL);
    CHECK(keeps_one() != NULL);
    free(OPAQUE(malloc(77)));
    return 3;
}
