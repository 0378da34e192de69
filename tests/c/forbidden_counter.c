// The library reads the time where the program has forbidden the time-stamp counter (rdtsc).
// An access to it raises SIGSEGV then, also in the kernel's code for the clocks (vDSO).
// expect: exit 0
// harden: too
#include "check.h"
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>

enum { THREADS = 3, ROUNDS = 3, BLOCKS = 40000, KIB = 1024 };

static void *work(void *unused) {
    char **blocks = calloc(BLOCKS, sizeof *blocks);
    CHECK(blocks != NULL);
    // Grows by huge pages, purges, and moves a large block.
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            CHECK((blocks[i] = malloc(KIB)) != NULL);
            OPAQUE(blocks[i])[0] = 1;
        }
        char *large = NULL;
        for (size_t size = 1; size < 16; size++)
            CHECK((large = realloc(large, size * 512 * KIB)) != NULL);
        free(large);
        for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
        // Sleeps in thread mode.
        malloc_trim(0);
    }
    free(blocks);
    return unused;
}

int main(void) {
#ifdef __x86_64__
    if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0) != 0) {
        fputs("no way to forbid the time-stamp counter here\n", stderr);
        return 77;
    }
#endif
    work(NULL);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, NULL) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    return 0;
}
