// Threads change CPUs constantly while they allocate; each block has one owner at a time.
// expect: exit 0
// ways: preload static
// check: no takes minutes in check mode, whose blocks go past what it tests
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

enum { THREADS = 6, STEPS = 2000000, KEPT = 300, WANTED = 2000 };
static int stop, finished;
static unsigned long moves;
static pthread_t threads[THREADS];

static void *own(void *number) {
    struct block {
        uint64_t owner, twin;
    } *kept[KEPT] = {0};
    uint64_t self = (uint64_t)(uintptr_t)number;
    uint32_t state = (uint32_t)self;
    for (uint64_t step = 0; step < STEPS || (step < 50ul * STEPS &&
                                             __atomic_load_n(&moves, __ATOMIC_RELAXED) < WANTED);
         step++) {
        uint32_t slot = random32(&state) % KEPT;
        if (kept[slot]) {
            CHECK(kept[slot]->owner >> 32 == self && kept[slot]->twin == ~kept[slot]->owner);
            kept[slot]->owner = kept[slot]->twin = 0;
            free(kept[slot]);
        }
        CHECK((kept[slot] = malloc(sizeof(struct block))) != NULL);
        kept[slot]->owner = self << 32 | step;
        kept[slot]->twin = ~(self << 32 | step);
    }
    for (int i = 0; i < KEPT; i++) free(kept[i]);
    __atomic_add_fetch(&finished, 1, __ATOMIC_RELAXED);
    return NULL;
}

// Moves each thread from CPU to CPU.
static void *shake(void *unused) {
    cpu_set_t all;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    int cpus[CPU_SETSIZE], count = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all)) cpus[count++] = cpu;
    for (unsigned turn = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); turn++)
        for (int i = 0; i < THREADS; i++) {
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(cpus[(turn + (unsigned)i) % (unsigned)count], &one);
            int error = pthread_setaffinity_np(threads[i], sizeof one, &one);
            // A thread that has finished may not exist any more.
            CHECK(error == 0 || error == ESRCH);
            __atomic_add_fetch(&moves, 1, __ATOMIC_RELAXED);
        }
    return unused;
}

int main(void) {
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, own, (void *)(i + 1)) == 0);
    pthread_t shaker;
    CHECK(pthread_create(&shaker, NULL, shake, NULL) == 0);
    // A thread that may still be moved must not be joined.
    while (__atomic_load_n(&finished, __ATOMIC_RELAXED) < THREADS) usleep(1000);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    CHECK(pthread_join(shaker, NULL) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(moves >= WANTED);
    return 0;
}
