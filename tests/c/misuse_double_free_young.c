// free of a small block twice by a thread that is new, on a cache that has had no block of its size: the first comes to lie under
// others there (docs/decisions/0022), where the second must find it before anybody gets the block twice.
// expect: abort "ebbmalloc: double free: 0x"
// harden: too
#include "misuse.h"
#include <pthread.h>

static char *block;

static void *other(void *copy) {
    free(block);
    MUST_STOP(free(copy));
    return NULL;
}

int main(void) {
    pthread_t thread;
    CHECK((block = malloc(40)) != NULL);
    CHECK(pthread_create(&thread, NULL, other, OPAQUE(block)) == 0);
    // At work meanwhile, so that this thread's virtual CPU is not the other's.
    for (;;) {}
}
