// A block is freed twice, by two threads that run at the same time, and both allocate afterwards.
// threat: double free
// default: exploitable or abort "ebbmalloc: double free: N passed to free" for 16 100 1000
// default: abort "ebbmalloc: invalid free: N passed to free" for 20000
// default: abort "ebbmalloc: double free: N passed to free" for 200000 3000000
// thread: exploitable for 20000
// check: abort "ebbmalloc: double free: N passed to free"
// harden: abort "ebbmalloc: double free: N passed to free"
#include "misuse.h"

static size_t wanted;
static char *block;
static int turn; // 0: other thread starts; 1: this one frees; 2: the other frees; 3: done

static void wait_for(int this_turn) {
    // Does not sleep: each thread must have a virtual CPU, to which caches may belong.
    while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) != this_turn) __asm__ volatile("" ::: "memory");
}

static void *other(void *copy) {
    stay(1);
    drop(take(wanted));
    __atomic_store_n(&turn, 1, __ATOMIC_RELEASE);
    wait_for(2);
    free(copy);
    harvest(wanted);
    __atomic_store_n(&turn, 3, __ATOMIC_RELEASE);
    return NULL;
}

static void misuse(size_t size) {
    pthread_t thread;
    wanted = size;
    block = malloc(size);
    if (pthread_create(&thread, NULL, other, OPAQUE(block))) _exit(BAD_ARGUMENT);
    wait_for(1);
    free(block);
    __atomic_store_n(&turn, 2, __ATOMIC_RELEASE);
    wait_for(3);
    harvest(size);
    pthread_join(thread, NULL);
}
