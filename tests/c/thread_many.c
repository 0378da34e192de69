// Thousands of threads at once: the cost of each is bounded, and is returned when they end.
// expect: exit 0
// check: no resident memory counts what check mode holds back
#include "check.h"
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 2000, SIZES = 12, BLOCKS = 40 };
static pthread_barrier_t started, finish;

static long resident_kib(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%*d %ld", &pages) == 1);
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void *idle(void *unused) {
    // Allocates many sizes and frees all: only the allocator's own memory for the thread remains.
    static __thread void *blocks[SIZES * BLOCKS];
    for (size_t i = 0; i < SIZES * BLOCKS; i++) {
        size_t size = 16 + i % SIZES * 40;
        CHECK((blocks[i] = malloc(size)) != NULL);
        memset(blocks[i], 1, size);
    }
    for (size_t i = 0; i < SIZES * BLOCKS; i++) free(blocks[i]);
    pthread_barrier_wait(&started);
    pthread_barrier_wait(&finish);
    return unused;
}

// Runs all threads at once. Measures how much memory they add while they live, and afterwards.
static void storm(const pthread_attr_t *attributes, long *alive, long *after) {
    static pthread_t threads[THREADS];
    // Free memory is purged at some time. It must not distort the result, so it is purged now.
    malloc_trim(0);
    long before = resident_kib();
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], attributes, idle, NULL) == 0);
    pthread_barrier_wait(&started);
    *alive = resident_kib() - before;
    pthread_barrier_wait(&finish);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    malloc_trim(0);
    *after = resident_kib() - before;
}

int main(void) {
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, 128 << 10) == 0);
    CHECK(pthread_barrier_init(&started, NULL, THREADS + 1) == 0);
    CHECK(pthread_barrier_init(&finish, NULL, THREADS + 1) == 0);
    long alive, after, rest;
    storm(&attributes, &alive, &after);
    storm(&attributes, &rest, &rest);
    fprintf(stderr, "%ld KiB alive, %ld after, %ld more after the second time\n", alive, after,
            rest);
    // Stacks take 12 to 20 KiB for each thread.
    CHECK(alive < THREADS * 100L);
    // The C library keeps some stacks.
    CHECK(after < 40 * 1024 && after < alive);
    CHECK(rest < 4 * 1024);
    return 0;
}
