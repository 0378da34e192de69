// A thread that allocates a little needs little more stack than one that does nothing.
// With thousands of threads, each page counts.
// expect: exit 0
// harden: too
// check: no a trace of the calls is taken on the stack
#include "check.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { STACK = 256 << 10, UNTOUCHED = 0xa5, MOST = 3 << 10 };

// Allocates a few blocks of many sizes, which reach the slow paths of malloc, realloc and free.
static void *allocate(void *unused) {
    for (size_t size = 8; size < 16 << 10; size += size / 3 + 8) {
        char *blocks[4];
        for (int i = 0; i < 4; i++) CHECK((blocks[i] = malloc(size)) != NULL);
        for (int i = 0; i < 4; i++) CHECK((blocks[i] = realloc(blocks[i], size * 2)) != NULL);
        for (int i = 0; i < 4; i++) free(blocks[i]);
    }
    return unused;
}

static void *rest(void *unused) { return unused; }

// Counts the bytes of its stack that a thread has written to.
static size_t used(void *(*work)(void *)) {
    unsigned char *stack =
        mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED);
    memset(stack, UNTOUCHED, STACK);
    pthread_attr_t attributes;
    pthread_t thread;
    CHECK(pthread_attr_init(&attributes) == 0 &&
          pthread_attr_setstack(&attributes, stack, STACK) == 0);
    CHECK(pthread_create(&thread, &attributes, work, NULL) == 0 && pthread_join(thread, NULL) == 0);
    size_t untouched = 0;
    while (untouched < STACK && stack[untouched] == UNTOUCHED) untouched++;
    CHECK(munmap(stack, STACK) == 0 && pthread_attr_destroy(&attributes) == 0);
    return STACK - untouched;
}

int main(void) {
    // One-time set-up and symbol lookup happen here.
    allocate(NULL);
    used(rest);
    size_t most = 0, least = used(rest);
    for (int i = 0; i < 20; i++) {
        size_t found = used(allocate);
        if (found > most) most = found;
    }
    fprintf(stderr, "%zu bytes of stack, %zu of them to allocate\n", most, most - least);
    CHECK(most - least <= MOST);
    return 0;
}
