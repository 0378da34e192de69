// calloc zeroes all of malloc_usable_size, also in memory that was used before.
// expect: exit 0
// harden: too
#include "check.h"
#include <malloc.h>
#include <stdlib.h>

static int zeroed(const unsigned char *bytes, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (bytes[i]) return 0;
    return 1;
}

int main(void) {
    static const size_t sizes[] = {1, 8, 16, 24, 100, 128, 129, 1000, 4096, 10000, 32768, 32769,
                                   65536, 100000, 1 << 20, 5 << 20, 9 << 20};
    enum { AT_ONCE = 4 };
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            unsigned char *blocks[AT_ONCE];
            size_t size = sizes[i];
            for (int k = 0; k < AT_ONCE; k++) {
                // Both orders of the arguments.
                blocks[k] = k % 2 ? calloc(size, 1) : calloc(1, size);
                CHECK(blocks[k] != NULL);
                CHECK(aligned_to(blocks[k], 16));
                size_t usable = malloc_usable_size(blocks[k]);
                CHECK(usable >= size && zeroed(blocks[k], usable));
                memset(blocks[k], 0xa5, usable);
            }
            for (int k = 0; k < AT_ONCE; k++) free(blocks[k]);
            // Neighbouring sizes share memory with what was just freed.
            unsigned char *other = calloc(size / 2 + 1, 2);
            CHECK(other != NULL && zeroed(other, (size / 2 + 1) * 2));
            memset(other, 0xff, (size / 2 + 1) * 2);
            free(other);
        }

    // Memory that was freed, returned to the kernel and allocated again.
    unsigned char *big = malloc(16 << 20);
    CHECK(big != NULL);
    memset(big, 0xee, 16 << 20);
    free(big);
    for (int i = 0; i < 16; i++) {
        unsigned char *part = calloc(1 << 20, 1);
        CHECK(part != NULL && zeroed(part, 1 << 20));
        if (i % 2) free(part);
    }
    return 0;
}
