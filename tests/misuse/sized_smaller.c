// A block is freed with half of its size, after blocks that have it.
#include "misuse.h"

static void misuse(size_t size) {
    take_row(size / 2);
    drop(row[0]);
    free_with_size(OPAQUE(malloc(size)), size / 2);
    harvest(size / 2);
    harvest(size);
}
