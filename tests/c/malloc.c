// Every small size and some larger ones: alignment, contents, no overlap, reuse.
// expect: exit 0
// harden: too
#include "check.h"
#include <stdlib.h>

enum { SIZES = 4096, LARGE = 40 };
static void *blocks[SIZES + 1], *large[LARGE];

int main(void) {
    for (int round = 0; round < 3; round++) {
        for (size_t size = 1; size <= SIZES; size++) {
            void *block = blocks[size] = malloc(size);
            CHECK(block != NULL);
            CHECK(aligned_to(block, 16));
            fill(block, size, (unsigned)size);
        }
        size_t size = 5000;
        for (int i = 0; i < LARGE; i++, size += size / 4) {
            CHECK((large[i] = malloc(size)) != NULL);
            CHECK(aligned_to(large[i], 16));
            fill_sample(large[i], size, (unsigned)i);
        }
        for (size = 1; size <= SIZES; size++) {
            CHECK(intact(blocks[size], size, (unsigned)size));
            free(blocks[size]);
        }
        size = 5000;
        for (int i = 0; i < LARGE; i++, size += size / 4) {
            CHECK(intact_sample(large[i], size, size, (unsigned)i));
            free(large[i]);
        }
    }

    // Many blocks of one size, freed in a different order.
    enum { MANY = 100000 };
    static uint32_t *many[MANY];
    for (uint32_t i = 0; i < MANY; i++) {
        CHECK((many[i] = malloc(24)) != NULL);
        many[i][0] = i, many[i][5] = ~i;
    }
    for (uint32_t step = 0; step < 7; step++)
        for (uint32_t i = step; i < MANY; i += 7) {
            CHECK(many[i][0] == i && many[i][5] == ~i);
            free(many[i]);
        }
    return 0;
}
