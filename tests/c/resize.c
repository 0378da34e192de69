// ebb_resize and ebb_remap work in place or move pages, else they fail; errno stays.
// expect: exit 0
// check: no nothing is resized in place in check mode
// ways: dynamic static
#include "check.h"
#include "ebbmalloc.h"
#include <errno.h>

int main(void) {
    errno = 7;
    CHECK(!ebb_resize(NULL, 1, 10) && ebb_remap(NULL, 1, 10) == NULL);
    for (size_t size = 1; size < 1 << 20; size += 1 + size / 3)
        for (size_t alignment = 1; alignment <= 1 << 17; alignment *= 8) {
            unsigned char *block = ebb_aligned_alloc(alignment, size), *moved;
            CHECK(block != NULL);
            fill(block, size, 1);
            size_t now = size,
                   wanted[] = {size + 1, size * 2, size / 2 + 1, size + (1 << 20), SIZE_MAX};
            for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
                size_t kept = now < wanted[i] ? now : wanted[i];
                if (ebb_resize(block, alignment, wanted[i])) {
                    CHECK(wanted[i] != SIZE_MAX && ebb_malloc_usable_size(block) >= wanted[i]);
                    now = wanted[i];
                } else if ((moved = ebb_remap(block, alignment, wanted[i])) != NULL) {
                    CHECK(wanted[i] != SIZE_MAX && ebb_malloc_usable_size(moved) >= wanted[i]);
                    CHECK(aligned_to(moved, alignment));
                    block = moved, now = wanted[i];
                }
                CHECK(intact(block, kept, 1));
                fill(block, now, 1);
            }
            ebb_free_aligned_sized(block, alignment, now);
        }
    // Rounding leaves 12 bytes. One more byte is another size class, and so is half of it.
    void *small = ebb_malloc(100);
    CHECK(ebb_resize(small, 1, 112) && !ebb_resize(small, 1, 113) && !ebb_resize(small, 1, 50));
    ebb_free_sized(small, 112);
    // A large block returns the memory beyond its new size.
    void *large = ebb_malloc(1 << 20);
    CHECK(ebb_resize(large, 1, 100000) && ebb_malloc_usable_size(large) < 200000);
    ebb_free_sized(large, 100000);
    CHECK(errno == 7);
    return 0;
}
