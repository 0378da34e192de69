// Under RLIMIT_AS memory runs out with NULL and ENOMEM, and freed memory can be allocated again.
// expect: exit 0
// ways: preload static
// check: no what is reserved for check mode is missing from the address space that it measures
// limit: 256 100
#include "check.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { MOST = 2 << 20 };

// Allocates until it fails, then frees all blocks. Returns how many bytes there were.
static size_t exhaust(size_t size) {
    static void *blocks[MOST];
    size_t count = 0;
    while (count < MOST) {
        errno = 0;
        void *block = malloc(size);
        if (block == NULL) {
            CHECK(errno == ENOMEM);
            break;
        }
        memset(block, 1, size);
        blocks[count++] = block;
    }
    CHECK(count < MOST);
    // Growing the last block fails too, and leaves it.
    if (count) {
        fill(blocks[count - 1], size, 8);
        errno = 0;
        CHECK(realloc(blocks[count - 1], (size_t)200 << 20) == NULL && errno == ENOMEM);
        CHECK(intact(blocks[count - 1], size, 8));
    }
    errno = 0;
    CHECK(calloc(1, (size_t)300 << 20) == NULL && errno == ENOMEM);
    for (size_t i = 0; i < count; i++) free(blocks[i]);
    return count * size;
}

static void *allocate_some(void *unused) {
    (void)unused;
    for (int i = 0; i < 1000; i++) {
        void *block = malloc(1 + (size_t)i * 13);
        CHECK(block != NULL);
        free(block);
    }
    return NULL;
}

int main(void) {
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur <= 1 << 30);
    static const size_t sizes[] = {3 << 20, 100000, 20000, 1000, 200};
    size_t first = 0;
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            size_t got = exhaust(sizes[i]);
            if (first == 0) first = got;
            CHECK(first >= 40 << 20);
            // For each size, a good part of the memory must be available again. Not all of it: the
            // last blocks in caches pin spans, and memory between those cannot join.
            CHECK(got >= first / 3 * 2);
        }
    pthread_t thread;
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, 1 << 20) == 0);
    CHECK(pthread_create(&thread, &attributes, allocate_some, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}
