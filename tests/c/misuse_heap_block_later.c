// free of a block whose heap was deleted.
// expect: abort "ebbmalloc: invalid free: 0x"
// ways: dynamic static
#include "ebbmalloc.h"
#include "misuse.h"

int main(void) {
    ebb_heap *heap = ebb_heap_new(0);
    void *block = ebb_heap_malloc(heap, 10);
    ebb_heap_delete(heap);
    MUST_STOP((free(block), 0));
}
