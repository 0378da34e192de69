// malloc_trim takes little time where other threads have put nothing in their caches since the last
// one: thread mode waits for them only if they have.
// expect: exit 0
// check: no caches are not used in check mode
#include "check.h"
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

static pthread_barrier_t barrier;

static void *sleeper(void *unused) {
    for (int i = 1; i < 1000; i++) free(OPAQUE(malloc(i)));
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return unused;
}

int main(void) {
    pthread_t thread;
    struct timespec from, to;
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, sleeper, NULL) == 0);
    pthread_barrier_wait(&barrier);
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < 500; i++) {
        free(OPAQUE(malloc(1000)));
        malloc_trim(0);
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    /* 500 waits of 20 ms are 10 s. */
    CHECK(to.tv_sec - from.tv_sec < 8);
    pthread_barrier_wait(&barrier);
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}
