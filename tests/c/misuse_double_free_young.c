// A new thread frees a small block twice, in a cache that has had no block of its size.
// The first free buries the block under others (docs/decisions/0022). The second must find it
// there,
// before the cache hands the block out twice.
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
    // This thread works meanwhile, so that the new thread runs on another virtual CPU.
    for (;;) {}
}
