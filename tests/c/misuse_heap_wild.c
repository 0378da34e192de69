// A pointer to something else as a heap.
// expect: abort "ebbmalloc: invalid heap: 0x"
// ways: dynamic static
#include "ebbmalloc.h"
#include "misuse.h"

int main(void) {
    ebb_heap *heap = ebb_heap_new(0);
    MUST_STOP(ebb_heap_calloc((ebb_heap *)&heap, 1, 10));
}
