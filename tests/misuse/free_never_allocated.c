// Free of an address behind the last block, at which the next could begin, but was not handed out.
#include "misuse.h"

static void misuse(size_t size) {
    take_row(size);
    int i = nearest();
    free(OPAQUE(row[ROW - 1] + (row[i + 1] - row[i])));
    harvest(size);
}
