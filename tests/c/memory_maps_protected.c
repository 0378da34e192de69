// A process at the limit of memory maps protects blocks. The heap does not grow under that
// protection.
// expect: exit 0
// ways: preload static
#include "maps.h"
#include <malloc.h>
#include <stdlib.h>

enum { BLOCK = 128 << 10, BLOCKS = 400, LONG = 64 * MIB };

// Allocates blocks, and stops at one that ends where the mapping ends. Returns the last one.
static char *block_at_end(void) {
    char *block = NULL;
    for (int i = 0; i < BLOCKS; i++) {
        CHECK((block = malloc(BLOCK)) != NULL);
        if ((unsigned long)block + BLOCK == mapping_of(block).end) break;
    }
    return block;
}

// Allocates a block, and writes to each of its pages.
static void use(size_t bytes) {
    volatile char *block = malloc(bytes);
    CHECK(block != NULL);
    for (size_t at = 0; at < bytes; at += 4096) block[at] = 1;
}

int main(void) {
    char *before = malloc(BLOCK), *hole = malloc(LONG), *behind = malloc(BLOCK);
    CHECK(before && hole && behind);
    char *last = block_at_end();
    free(hole);
    malloc_trim(0);
    CHECK(mprotect(before, BLOCK, PROT_READ) == 0 && mprotect(last, BLOCK, PROT_READ) == 0);
    use_up_maps();
    for (int i = 0; i < BLOCKS; i++) use(BLOCK);
    use(LONG);
    return 0;
}
