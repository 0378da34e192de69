// posix_memalign reports by its return value only; a failure changes neither pointer nor errno.
// expect: exit 0
#include "check.h"
#include <errno.h>
#include <stdlib.h>

int main(void) {
    static size_t bad[] = {0, 1, 2, 3, 4, 7, 9, 24, 40, 4097, (size_t)3 << 20};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        void *block = &block;
        errno = 1234;
        CHECK(posix_memalign(&block, OPAQUE(bad[i]), 100) == EINVAL);
        CHECK(block == &block);
        CHECK(errno == 1234);
    }

    void *block = &block;
    errno = 1234;
    CHECK(posix_memalign(&block, 64, OPAQUE((size_t)PTRDIFF_MAX + 1)) == ENOMEM);
    CHECK(posix_memalign(&block, 64, OPAQUE(SIZE_MAX)) == ENOMEM);
    CHECK(posix_memalign(&block, OPAQUE((size_t)1 << 62), (size_t)1 << 62) == ENOMEM);
    CHECK(block == &block);
    CHECK(errno == 1234);

    for (size_t alignment = 8; alignment <= (size_t)1 << 20; alignment *= 2)
        for (size_t size = 1; size <= 1 << 20; size = size * 3 + 1) {
            errno = 1234;
            CHECK(posix_memalign(&block, alignment, size) == 0);
            CHECK(errno == 1234);
            CHECK(block != NULL && aligned_to(block, alignment));
            fill_sample(block, size, 5);
            CHECK(intact_sample(block, size, size, 5));
            free(block);
        }

    void *empty = NULL;
    CHECK(posix_memalign(&empty, 32, 0) == 0);
    free(empty);
    return 0;
}
