// A sized free with the size of another class; with statistics on, each size is checked.
// expect: abort "ebbmalloc: wrong size: 0x"
// ways: dynamic static
#include "ebbmalloc.h"
#include "misuse.h"

int main(void) {
    // Where the cache has no capacity for this size, the block is looked up in any case.
    for (int i = 0; i < 100; i++)
        free(OPAQUE(malloc(1000)));
    MUST_STOP(ebb_free_sized(malloc(OPAQUE(64)), OPAQUE(1000)));
    return 1;
}
