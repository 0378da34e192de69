// free of a heap's block twice.
// expect: abort "ebbmalloc: double free: 0x"
// ways: dynamic static
#include "ebbmalloc.h"
#include "misuse.h"

int main(void) {
    ebb_heap *heap = ebb_heap_new(0);
    void *kept = ebb_heap_malloc(heap, 10), *block = ebb_heap_malloc(heap, 10),
         *copy = OPAQUE(block);
    CHECK(kept != NULL);
    free(block);
    MUST_STOP((free(copy), 0));
}
