// A sized free of a large block with a larger size.
// expect: abort "ebbmalloc: wrong size: 0x"
// ways: dynamic static
#include "ebbmalloc.h"
#include "misuse.h"

int main(void) {
    MUST_STOP(ebb_free_aligned_sized(aligned_alloc(4096, OPAQUE(100000)), 4096, OPAQUE(1000000)));
    return 1;
}
