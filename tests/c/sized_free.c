// free_sized and free_aligned_sized of C23, which glibc 2.36 does not have.
// expect: exit 0
#include "check.h"
#include <stdlib.h>

// Weak, so that a program that preloads the library links without it.
extern void free_sized(void *block, size_t size) __attribute__((weak));
extern void free_aligned_sized(void *block, size_t alignment, size_t size) __attribute__((weak));

int main(void) {
    CHECK(OPAQUE(&free_sized) != NULL);
    CHECK(OPAQUE(&free_aligned_sized) != NULL);
    free_sized(NULL, 0);
    free_sized(NULL, 100);
    free_aligned_sized(NULL, 64, 100);
    for (int round = 0; round < 3; round++) {
        for (size_t size = 0; size < 2 << 20; size += 1 + size / 8) {
            void *one = malloc(size), *two = calloc(1, size), *three = realloc(malloc(1), size + 1);
            CHECK(one && two && three);
            fill(one, size, 1);
            fill(two, size, 2);
            CHECK(intact(one, size, 1) && intact(two, size, 2));
            free_sized(one, size);
            free_sized(two, size);
            free_sized(three, size + 1);
        }
        for (size_t alignment = 16; alignment <= 1 << 20; alignment *= 2)
            for (size_t size = alignment; size <= 8 * alignment && size < 4 << 20; size *= 2) {
                void *block = aligned_alloc(alignment, size);
                CHECK(block != NULL);
                fill_sample(block, size, 3);
                free_aligned_sized(block, alignment, size);
            }
    }
    return 0;
}
