// A block is freed twice by a thread that did not allocate it.
// threat: double free
// default: abort "ebbmalloc: double free: N passed to free" for 16 100 1000 200000 3000000
// default: abort "ebbmalloc: invalid free: N passed to free" for 20000
// thread: abort "ebbmalloc: double free: N passed to free" for 20000
// check: abort "ebbmalloc: double free: N passed to free"
// harden: abort "ebbmalloc: double free: N passed to free"
#include "misuse.h"

static char *block;

static void *other(void *copy) {
    stay(1);
    // The first thread only makes the C library allocate what it keeps for a thread.
    if (copy == NULL) return NULL;
    free(block);
    free(copy);
    return NULL;
}

static void elsewhere(void *argument) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, other, argument) || pthread_join(thread, NULL))
        _exit(BAD_ARGUMENT);
}

static void misuse(size_t size) {
    elsewhere(NULL);
    block = malloc(size);
    elsewhere(OPAQUE(block));
    harvest(size);
}
