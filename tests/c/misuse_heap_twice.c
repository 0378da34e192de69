// Delete of a heap twice.
// expect: abort "ebbmalloc: deleted heap: 0x"
// ways: dynamic static
#include "ebbmalloc.h"
#include "misuse.h"

int main(void) {
    ebb_heap *heap = ebb_heap_new(0);
    ebb_heap_delete(heap);
    MUST_STOP((ebb_heap_delete(heap), 0));
}
