// malloc_usable_size returns at least the requested size, and all of it may be written.
// expect: exit 0
// ways: preload static
#include "check.h"
#include <malloc.h>
#include <stdlib.h>

int main(void) {
    CHECK(malloc_usable_size(NULL) == 0);
    enum { COUNT = 400 };
    static void *blocks[COUNT];
    static size_t usable[COUNT];
    for (int round = 0; round < 2; round++) {
        size_t size = round;
        for (int i = 0; i < COUNT; i++, size += 1 + size / 32) {
            blocks[i] = i % 3 == 2 ? memalign(256, size) : malloc(size);
            CHECK(blocks[i] != NULL);
            usable[i] = malloc_usable_size(blocks[i]);
            CHECK(usable[i] >= size);
            if (size > 64 << 10) CHECK(usable[i] <= size + size / 4 + (64 << 10));
            fill(blocks[i], usable[i], (unsigned)i);
            if (size > 4 << 20) size = 1;
        }
        for (int i = 0; i < COUNT; i++) {
            CHECK(malloc_usable_size(blocks[i]) == usable[i]);
            CHECK(intact(blocks[i], usable[i], (unsigned)i));
            free(blocks[i]);
        }
    }
    return 0;
}
