// A byte past the end of a heap's block, seen when the heap is deleted.
// expect: report "ebbmalloc: overflow: 0x"
// says: "10 bytes, and byte 10 was written (0x07); seen by ebb_heap_delete"
// ways: dynamic static
// check: only
#include "ebbmalloc.h"
#include "misuse.h"

int main(void) {
    ebb_heap *heap = ebb_heap_new(0);
    char *block = ebb_heap_malloc(heap, 10);
    OPAQUE(block)[10] = 7;
    MUST_STOP((ebb_heap_delete(heap), 0));
}
