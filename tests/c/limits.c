// Impossible sizes, and the corner cases of free and realloc.
// expect: exit 0
#include "check.h"
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wuse-after-free"
#pragma GCC diagnostic ignored "-Walloc-size-larger-than="

#define FAILS_WITH(error, call) (errno = 0, (call) == NULL && errno == (error))

int main(void) {
    // Zero bytes: each call returns a different pointer.
    enum { EMPTY = 1000 };
    static char *empty[EMPTY];
    for (int i = 0; i < EMPTY; i++) {
        empty[i] = i % 3 == 0   ? malloc(OPAQUE((size_t)0))
                   : i % 3 == 1 ? calloc(0, 5)
                                : calloc(5, 0);
        CHECK(empty[i] != NULL);
        if (i) CHECK(empty[i] != empty[i - 1]);
        CHECK(aligned_to(empty[i], 8));
    }
    for (int i = 1; i < EMPTY; i++)
        for (int k = 0; k < i; k++) CHECK(empty[i] != empty[k]);
    for (int i = 0; i < EMPTY; i++) free(empty[i]);

    // Too much.
    static size_t absurd[] = {
        (size_t)PTRDIFF_MAX + 1, SIZE_MAX,    SIZE_MAX - 1,    SIZE_MAX - 15,  SIZE_MAX - 4095,
        SIZE_MAX - 65535,        PTRDIFF_MAX, (size_t)1 << 60, (size_t)1 << 48};
    char *kept = malloc(300);
    CHECK(kept != NULL);
    fill(kept, 300, 6);
    for (size_t i = 0; i < sizeof absurd / sizeof *absurd; i++) {
        size_t size = OPAQUE(absurd[i]);
        CHECK(FAILS_WITH(ENOMEM, malloc(size)));
        CHECK(FAILS_WITH(ENOMEM, calloc(1, size)));
        CHECK(FAILS_WITH(ENOMEM, calloc(size, 1)));
        CHECK(FAILS_WITH(ENOMEM, realloc(NULL, size)));
        CHECK(FAILS_WITH(ENOMEM, realloc(kept, size)));
        CHECK(FAILS_WITH(ENOMEM, aligned_alloc(64, size)));
        CHECK(FAILS_WITH(ENOMEM, memalign(1 << 20, size)));
        CHECK(FAILS_WITH(ENOMEM, valloc(size)));
        CHECK(FAILS_WITH(ENOMEM, pvalloc(size)));
    }
    CHECK(FAILS_WITH(ENOMEM, calloc(OPAQUE((size_t)1 << 32), (size_t)1 << 32)));
    CHECK(FAILS_WITH(ENOMEM, calloc(OPAQUE((size_t)1 << 32), ((size_t)1 << 32) + 1)));
    CHECK(FAILS_WITH(ENOMEM, calloc(OPAQUE(SIZE_MAX), 2)));
    CHECK(intact(kept, 300, 6));

    // A large block too survives a failed realloc.
    char *large = malloc(1 << 20);
    CHECK(large != NULL);
    fill(large, 1 << 20, 7);
    CHECK(FAILS_WITH(ENOMEM, realloc(large, OPAQUE((size_t)1 << 60))));
    CHECK(intact(large, 1 << 20, 7));

    // free preserves errno.
    void *blocks[] = {
        NULL,  malloc(1), malloc(1000), malloc(40000), malloc(3 << 20), malloc(100 << 20),
        large, kept};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        errno = 4321;
        free(blocks[i]);
        CHECK(errno == 4321);
    }

    // realloc(p, 0) frees and returns NULL: memory must not grow.
    for (int i = 0; i < 3000; i++) {
        char *block = malloc(1 << 20);
        CHECK(block != NULL);
        memset(block, 1, 1 << 20);
        CHECK(realloc(block, OPAQUE((size_t)0)) == NULL);
        CHECK(realloc(malloc(100), OPAQUE((size_t)0)) == NULL);
    }
    void *fresh = realloc(NULL, OPAQUE((size_t)0));
    CHECK(fresh != NULL);
    free(fresh);
    return 0;
}
