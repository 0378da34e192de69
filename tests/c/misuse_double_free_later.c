// free of a block that was freed long ago, with many frees since.
// expect: abort "ebbmalloc: double free: 0x"
// harden: too
#include "misuse.h"

enum { BLOCKS = 50000 };
static void *blocks[BLOCKS];

int main(void) {
    for (int i = 0; i < BLOCKS; i++) CHECK((blocks[i] = malloc(100)) != NULL);
    void *copy = OPAQUE(blocks[10]);
    for (int i = 0; i < BLOCKS; i++)
        if (i % 2 == 0) free(blocks[i]);
    // Seen at the latest when the block comes back a second time to where its bit is already set.
    free(copy);
    for (int i = 0; i < BLOCKS; i++)
        if (i % 2 == 1) free(blocks[i]);
    MUST_STOP(malloc_trim(0));
}
