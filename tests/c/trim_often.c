// malloc_trim seldom waits for other threads: thread mode only if they have put something in their
// caches since the last one, and then not each time.
// expect: exit 0
// check: no caches are not used in check mode
#define _GNU_SOURCE
#include "check.h"
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>

static pthread_barrier_t barrier;

static _Atomic int ends;

static void *busy(void *unused) {
    while (!ends)
        for (int i = 1; i < 1000; i++) free(OPAQUE(malloc(i)));
    return unused;
}

static void *sleeper(void *unused) {
    for (int i = 1; i < 1000; i++) free(OPAQUE(malloc(i)));
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return unused;
}

/* How often this thread gives up the CPU while it trims 500 times. Each wait does. */
static long waits(void) {
    struct rusage from, to;
    CHECK(getrusage(RUSAGE_THREAD, &from) == 0);
    for (int i = 0; i < 500; i++) {
        free(OPAQUE(malloc(1000)));
        malloc_trim(0);
    }
    CHECK(getrusage(RUSAGE_THREAD, &to) == 0);
    return to.ru_nvcsw - from.ru_nvcsw;
}

int main(void) {
    pthread_t thread;
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, sleeper, NULL) == 0);
    pthread_barrier_wait(&barrier);
    CHECK(waits() < 250);
    pthread_barrier_wait(&barrier);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, busy, NULL) == 0);
    CHECK(waits() < 250);
    ends = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}
