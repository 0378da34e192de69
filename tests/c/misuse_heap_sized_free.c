// A sized free of a heap's block, which is not allowed: seen where sizes are checked.
// expect: abort "ebbmalloc: block of a heap: 0x"
// ways: dynamic static
#include "ebbmalloc.h"
#include "misuse.h"

int main(void) {
    MUST_STOP(ebb_free_sized(ebb_heap_malloc(ebb_heap_new(0), OPAQUE(64)), OPAQUE(64)));
    return 1;
}
