// malloc, realloc, free and malloc_trim are no cancellation points.
// expect: exit 0
#define _GNU_SOURCE
#include "check.h"
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>

static int came_back;

static void *worker(void *none) {
    // From here on, every cancellation point ends this thread.
    CHECK(pthread_cancel(pthread_self()) == 0);
    void *first = malloc(100);
    CHECK(first != NULL);
    // Large enough that the engine asks the kernel how much memory there is, and returns some.
    enum { LARGE = 64 };
    static void *large[LARGE];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < LARGE; i++) {
            CHECK((large[i] = calloc(1, 1 << 20)) != NULL);
            memset(large[i], 1, 1 << 20);
        }
        for (int i = 0; i < LARGE; i++) free(large[i]);
    }
    CHECK((first = realloc(first, 100000)) != NULL);
    free(first);
    malloc_trim(0);
    (void)mallinfo2();
    malloc_stats();
    came_back = 1;
    pthread_testcancel();
    return none;
}

int main(void) {
    pthread_t thread;
    void *result;
    CHECK(pthread_create(&thread, NULL, worker, NULL) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(result == PTHREAD_CANCELED);
    CHECK(came_back);
    return 0;
}
