// A null pointer as a heap.
// expect: abort "ebbmalloc: invalid heap: 0x0 passed to ebb_heap_malloc"
// ways: dynamic static
#include "ebbmalloc.h"
#include "misuse.h"

int main(void) {
    ebb_heap *heap = ebb_heap_new(0);
    ebb_heap_delete(heap);
    MUST_STOP(ebb_heap_malloc(NULL, 10));
}
