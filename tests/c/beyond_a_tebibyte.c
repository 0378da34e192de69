// A heap may use more than 1 TiB of addresses where the machine has them; most are never touched.
// expect: exit 0
// ways: preload
#include "check.h"
#include <malloc.h>
#include <stdlib.h>

enum { BLOCKS = 3000 };

int main(void) {
    static char *blocks[BLOCKS];
    const size_t bytes = (size_t)1 << 30;
    // Some emulators and small machines have addresses of 39 bits.
    if ((unsigned long)&blocks < 1ul << 40) {
        fprintf(stderr, "there are no such addresses here\n");
        return 77;
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        CHECK((blocks[i] = malloc(bytes)) != NULL);
        memset(OPAQUE(blocks[i]), (int)i, sizeof i);
        blocks[i][bytes - 1] = (char)i;
    }
    CHECK(malloc_usable_size(blocks[BLOCKS - 1]) >= bytes);
    for (unsigned i = 0; i < BLOCKS; i++) {
        CHECK(blocks[i][0] == (char)i && blocks[i][bytes - 1] == (char)i);
        CHECK(i == 0 || (blocks[i] - blocks[i - 1] >= (ptrdiff_t)bytes ||
                         blocks[i - 1] - blocks[i] >= (ptrdiff_t)bytes));
    }
    char *grown = realloc(blocks[0], 2 * bytes);
    CHECK(grown != NULL && grown[bytes - 1] == 0);
    blocks[0] = grown;
    for (unsigned i = 0; i < BLOCKS; i++) free(blocks[i]);
    char *small = malloc(100);
    CHECK(small != NULL);
    free(small);
    return 0;
}
