// aligned_alloc, memalign, valloc and pvalloc: alignments from 8 bytes to 1 GiB, and invalid ones.
// expect: exit 0
// harden: too
#include "check.h"
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>

int main(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    // aligned_alloc takes only powers of two, and any size.
    static size_t bad[] = {0, 3, 24, 100, 4095, SIZE_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        errno = 0;
        CHECK(aligned_alloc(OPAQUE(bad[i]), 100) == NULL);
        CHECK(errno == EINVAL);
    }
    void *odd = aligned_alloc(64, OPAQUE((size_t)65));
    CHECK(odd != NULL && aligned_to(odd, 64));
    fill(odd, 65, 1);
    free(odd);

    // memalign rounds up an alignment that is no power of two.
    for (size_t alignment = 1; alignment <= 5000; alignment += 37) {
        size_t power = 1;
        while (power < alignment) power *= 2;
        char *block = memalign(OPAQUE(alignment), 100);
        CHECK(block != NULL && aligned_to(block, power));
        fill(block, 100, 2);
        free(block);
    }

    // Every power of two, several blocks at once, small and larger than the alignment.
    for (int bits = 3; bits <= 30; bits++) {
        size_t alignment = (size_t)1 << bits;
        size_t sizes[] = {1, alignment / 2 + 1, alignment, alignment + 1};
        char *blocks[4][3];
        for (int s = 0; s < 4; s++)
            for (int k = 0; k < 3; k++) {
                char *block = blocks[s][k] =
                    k == 2 ? memalign(alignment, sizes[s]) : aligned_alloc(alignment, sizes[s]);
                CHECK(block != NULL && aligned_to(block, alignment));
                // Writing both ends is enough; touching whole gigabytes would take too long.
                block[sizes[s] - 1] = (char)(s + 10 * k);
                block[0] = (char)(s + 10 * k);
            }
        for (int s = 0; s < 4; s++)
            for (int k = 0; k < 3; k++) {
                CHECK(blocks[s][k][0] == (char)(s + 10 * k) &&
                      blocks[s][k][sizes[s] - 1] == (char)(s + 10 * k));
                free(blocks[s][k]);
            }
    }

    // Impossible requests neither crash nor return a block with a smaller alignment.
    for (int bits = 48; bits < 64; bits++) {
        errno = 0;
        CHECK(aligned_alloc(OPAQUE((size_t)1 << bits), 16) == NULL);
        CHECK(errno == ENOMEM);
        errno = 0;
        CHECK(memalign(OPAQUE((size_t)1 << bits), 16) == NULL);
        CHECK(errno == ENOMEM);
    }
    errno = 0;
    CHECK(memalign(64, OPAQUE(SIZE_MAX - 10)) == NULL);
    CHECK(errno == ENOMEM);
    errno = 0;
    CHECK(memalign(OPAQUE(((size_t)1 << 63) + 1), 16) == NULL);
    CHECK(errno == EINVAL || errno == ENOMEM);

    char *block = valloc(100);
    CHECK(block != NULL && aligned_to(block, page));
    free(block);
    CHECK((block = valloc(OPAQUE((size_t)0))) != NULL && aligned_to(block, page));
    free(block);
    CHECK((block = pvalloc(page + 1)) != NULL && aligned_to(block, page));
    CHECK(malloc_usable_size(block) >= 2 * page);
    memset(block, 1, 2 * page);
    free(block);
    CHECK((block = pvalloc(OPAQUE((size_t)0))) != NULL && aligned_to(block, page));
    CHECK(malloc_usable_size(block) >= page);
    memset(block, 1, page);
    free(block);
    errno = 0;
    CHECK(pvalloc(OPAQUE(SIZE_MAX - page / 2)) == NULL);
    CHECK(errno == ENOMEM);
    return 0;
}
