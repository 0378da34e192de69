// The library is set up before constructors of other libraries, also where these allocate nothing.
// So hooks around forks that they register run while its locks are free, and the C library may
// allocate while it registers many of them.
// expect: exit 0
// ways: preload dynamic
// plugin: link
// harden: too
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HOOKS = 60 };

#ifdef PLUGIN
int hooks_run;

static void hook(void) {
    hooks_run++;
    /* Of many sizes, so that caches miss. */
    for (size_t size = 1; size < 2 << 20; size += size / 2 + 1) {
        void *block = malloc(size);
        CHECK(block != NULL);
        free(OPAQUE(block));
    }
}

static void nothing(void) {}

__attribute__((constructor)) static void begin(void) {
    for (int i = 0; i < HOOKS; i++) {
        CHECK(pthread_atfork(i < 3 ? hook : nothing, nothing, nothing) == 0);
        CHECK(atexit(nothing) == 0);
    }
}
#else
extern int hooks_run;

static void *allocate(void *none) {
    for (int i = 0; i < 200000; i++) free(OPAQUE(malloc((size_t)i % 5000)));
    return none;
}

int main(void) {
    pthread_t others[2];
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&others[i], NULL, allocate, NULL) == 0);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) _exit(0);
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    for (int i = 0; i < 2; i++) CHECK(pthread_join(others[i], NULL) == 0);
    CHECK(hooks_run == 3 * 20);
    return 0;
}
#endif
