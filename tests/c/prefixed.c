// The functions of malloc.h under the prefix `ebb_`, as ebbmalloc.h declares them.
// expect: exit 0
// ways: dynamic static
#include "check.h"
#include "ebbmalloc.h"
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>

int main(void) {
    void *block = ebb_malloc(100);
    CHECK(block != NULL && ebb_malloc_usable_size(block) >= 100);
    fill(block, 100, 1);
    CHECK((block = ebb_realloc(block, 100000)) != NULL && intact(block, 100, 1));
    CHECK((block = ebb_reallocarray(block, 10, 20000)) != NULL && intact(block, 100, 1));
    errno = 0;
    CHECK(ebb_reallocarray(block, SIZE_MAX, 2) == NULL && errno == ENOMEM);
    ebb_free(block);

    unsigned char *zeroed = ebb_calloc(1000, 3);
    CHECK(zeroed != NULL);
    for (int i = 0; i < 3000; i++) CHECK(zeroed[i] == 0);
    ebb_free_sized(zeroed, 3000);

    CHECK(ebb_posix_memalign(&block, 3, 10) == EINVAL);
    CHECK(ebb_posix_memalign(&block, 4096, 10) == 0 && aligned_to(block, 4096));
    ebb_free(block);
    CHECK((block = ebb_aligned_alloc(128, 1280)) != NULL && aligned_to(block, 128));
    ebb_free_aligned_sized(block, 128, 1280);
    CHECK((block = ebb_memalign(100, 10)) != NULL && aligned_to(block, 128));
    ebb_free(block);
    CHECK((block = ebb_valloc(10)) != NULL && aligned_to(block, 4096));
    ebb_free(block);
    CHECK((block = ebb_pvalloc(0)) != NULL && ebb_malloc_usable_size(block) >= 4096);
    ebb_free(block);

    // They use the same heap as the plain names.
    CHECK((block = malloc(500)) != NULL);
    ebb_free(block);
    CHECK((block = ebb_malloc(500)) != NULL);
    free(block);

    size_t before = ebb_mallinfo2().hblkhd + ebb_mallinfo2().uordblks;
    CHECK((block = ebb_malloc(10 << 20)) != NULL);
    CHECK(ebb_mallinfo2().hblkhd + ebb_mallinfo2().uordblks >= before + (10 << 20));
    CHECK(ebb_mallinfo().hblkhd + ebb_mallinfo().uordblks >= 10 << 20);
    ebb_free(block);
    CHECK(ebb_malloc_info(0, stdout) == 0);
    ebb_malloc_stats();
    CHECK(ebb_mallopt(M_MMAP_THRESHOLD, 1 << 20) == 1);
    int trimmed = ebb_malloc_trim(0);
    CHECK(trimmed == 0 || trimmed == 1);
    return 0;
}
