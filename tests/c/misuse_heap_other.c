// A function of a heap gets a block of another heap.
// expect: abort "ebbmalloc: not a block of this heap: 0x"
// harden: too
// ways: dynamic static
#include "ebbmalloc.h"
#include "misuse.h"

int main(void) {
    ebb_heap *heap = ebb_heap_new(0);
    void *block = ebb_heap_malloc(ebb_heap_new(0), 10);
    MUST_STOP(ebb_heap_realloc(heap, block, 100));
}
