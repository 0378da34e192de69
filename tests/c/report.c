// malloc_trim, mallinfo, mallinfo2, malloc_info, malloc_stats and mallopt return plausible results.
// expect: exit 0
// check: no its sums count what check mode adds
#define _GNU_SOURCE
#include "xml.h"
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

int main(void) {
    enum { BLOCKS = 2000, SIZE = 5000 };
    static void *blocks[BLOCKS];
    size_t before = mallinfo2().uordblks;
    for (int i = 0; i < BLOCKS; i++) {
        CHECK((blocks[i] = malloc(SIZE)) != NULL);
        memset(blocks[i], 1, SIZE);
    }
    struct mallinfo2 full = mallinfo2();
    CHECK(full.uordblks >= before + (size_t)BLOCKS * SIZE * 9 / 10);
    CHECK(full.uordblks < before + (size_t)BLOCKS * SIZE * 2);
    CHECK(full.arena + full.hblkhd >= full.uordblks);
    struct mallinfo narrow = mallinfo();
    CHECK((size_t)narrow.uordblks >= before + (size_t)BLOCKS * SIZE * 9 / 10);

    free(malloc_info_text());
    CHECK(malloc_info(77, stdout) != 0);

    malloc_stats();
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    CHECK(mallinfo2().uordblks < full.uordblks - (size_t)BLOCKS * SIZE / 2);
    int trimmed = malloc_trim(0);
    CHECK(trimmed == 0 || trimmed == 1);

    // glibc answers 1 for a parameter that it knows.
    CHECK(mallopt(M_MMAP_THRESHOLD, 1 << 20) == 1);
    CHECK(mallopt(M_TRIM_THRESHOLD, 1 << 20) == 1);
    void *block = malloc(100);
    CHECK(block != NULL);
    free(block);
    return 0;
}
