// Reports need little stack: a thread with the least that a thread may have asks for each, and ends
// the program, which prints statistics.
// expect: exit 0
// harden: too
#include "check.h"
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { STACK = 256 << 10, UNTOUCHED = 0xa5, MOST = 6 << 10 };

static FILE *sink;

static void *rest(void *unused) { return unused; }

static void *mallinfo_2(void *unused) {
    CHECK(mallinfo2().uordblks > 0);
    return unused;
}

static void *stats(void *unused) {
    malloc_stats();
    return unused;
}

static void *info(void *unused) {
    CHECK(malloc_info(0, sink) == 0);
    return unused;
}

static void *leave(void *unused) {
    mallinfo_2(unused);
    stats(unused);
    info(unused);
    exit(0);
}

static void run(void *(*work)(void *), void *stack, size_t bytes) {
    pthread_attr_t attributes;
    pthread_t thread;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstack(&attributes, stack, bytes) == 0);
    CHECK(pthread_create(&thread, &attributes, work, NULL) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(pthread_attr_destroy(&attributes) == 0);
}

static unsigned char *map(size_t bytes) {
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED);
    return (unsigned char *)pages;
}

// Counts the bytes of its stack that a thread has written to.
static size_t used(void *(*work)(void *)) {
    static unsigned char *stack;
    if (stack == NULL) stack = map(STACK);
    memset(stack, UNTOUCHED, STACK);
    run(work, stack, STACK);
    size_t untouched = 0;
    while (untouched < STACK && stack[untouched] == UNTOUCHED) untouched++;
    return STACK - untouched;
}

static void needs_little(const char *name, void *(*work)(void *), size_t least) {
    size_t most = used(work) - least;
    fprintf(stderr, "%s: %zu bytes of stack\n", name, most);
    CHECK(most <= MOST);
}

int main(void) {
    CHECK((sink = fopen("/dev/null", "w")) != NULL);
    for (size_t size = 1; size < 100000; size += size / 3 + 1) CHECK(malloc(size) != NULL);
    used(rest), used(stats), used(info);
    size_t least = used(rest);
    needs_little("mallinfo2", mallinfo_2, least);
    needs_little("malloc_stats", stats, least);
    needs_little("malloc_info", info, least);
    long smallest = PTHREAD_STACK_MIN;
    unsigned char *pages = map(smallest + 4096);
    CHECK(mprotect(pages, 4096, PROT_NONE) == 0);
    run(leave, pages + 4096, smallest);
    return 1;
}
