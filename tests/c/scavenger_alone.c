// A program that has joined its threads and holds 100 MiB has one thread, though it goes on
// allocating. So unshare(2) works, and a bare exit of the first thread ends the process.
// expect: exit 0
// ways: preload static
// harden: too
#define _GNU_SOURCE
#include "company.h"
#include <sys/syscall.h>

enum { SMALL = 100 << 10, END_MS = 15000 };

static void *end(void *unused) {
    return unused;
}

static void allocate(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, end, NULL) == 0 && pthread_join(thread, NULL) == 0);
    for (int i = 0; i < SMALL; i++) memset(OPAQUE(malloc(BLOCK)), 1, BLOCK);
    work_ms(100);
}

static int start_again(const char *part) {
    return execl("/proc/self/exe", "scavenger_alone", part, NULL);
}

static int may_unshare(void) {
    return start_again("unshare");
}

static int ends_with_the_first(void) {
    return start_again("exit");
}

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Forked children have no scavenger before they have threads, so each part starts a program. */
int main(int arguments, char **argument) {
    pid_t all[4];
    if (arguments == 1) {
        IN_CHILD(may_unshare, 0);
        long begin_ms = now_ms();
        IN_CHILD(ends_with_the_first, 0);
        CHECK(now_ms() - begin_ms < END_MS);
        return 0;
    }
    allocate();
    if (strcmp(argument[1], "exit") == 0) syscall(SYS_exit, 0);
    /* On a busy machine a joined thread may be there for a moment longer. Now and then enough is
     * free for the scavenger to be worth it, so the program has eight tries. */
    for (int tries = 0; tries < 100 && threads(all, 4) > 1; tries++) work_ms(20);
    char tries_left[] = {arguments > 2 ? argument[2][0] - 1 : '7', 0};
    if (threads(all, 4) > 1 && tries_left[0] > '0')
        return execl("/proc/self/exe", "scavenger_alone", "unshare", tries_left, NULL);
    CHECK(threads(all, 4) == 1 && is_alone());
    return 0;
}
