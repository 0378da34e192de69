// A block is freed after its heap was deleted.
// expect: report "ebbmalloc: "
// says: "passed to free"
// says: "first freed by thread"
// ways: dynamic static
// check: only
#include "ebbmalloc.h"
#include "misuse.h"

int main(void) {
    ebb_heap *heap = ebb_heap_new(0);
    char *block = ebb_heap_malloc(heap, 10);
    ebb_heap_delete(heap);
    MUST_STOP((free(OPAQUE(block)), 0));
}
