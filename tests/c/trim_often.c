// malloc_trim does not wait where other threads have put nothing in their caches since the last
// one. Thread mode waits for them only if they have.
// expect: exit 0
// check: no caches are not used in check mode
#define _GNU_SOURCE
#include "check.h"
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>

static pthread_barrier_t barrier;

static void *sleeper(void *unused) {
    for (int i = 1; i < 1000; i++) free(OPAQUE(malloc(i)));
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return unused;
}

int main(void) {
    pthread_t thread;
    struct rusage from, to;
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, sleeper, NULL) == 0);
    pthread_barrier_wait(&barrier);
    CHECK(getrusage(RUSAGE_THREAD, &from) == 0);
    for (int i = 0; i < 500; i++) {
        free(OPAQUE(malloc(1000)));
        malloc_trim(0);
    }
    CHECK(getrusage(RUSAGE_THREAD, &to) == 0);
    /* Each wait gives up the CPU. */
    CHECK(to.ru_nvcsw - from.ru_nvcsw < 250);
    pthread_barrier_wait(&barrier);
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}
