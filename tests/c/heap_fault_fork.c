// A handler of SIGABRT may fork, as reporters of crashes do: a fault in a heap holds no lock.
// expect: exit 0
// ways: dynamic static
// harden: too
#include "check.h"
#include "ebbmalloc.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void report(int number) {
    (void)number;
    pid_t child = fork();
    if (child == 0) _exit(0);
    CHECK(child > 0 && waitpid(child, NULL, 0) == child);
}

static void *idle(void *unused) {
    pause();
    return unused;
}

int main(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(30);
        signal(SIGABRT, report);
        // So that the process is not alone in what it locks.
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, idle, NULL) == 0);
        ebb_heap *heap = ebb_heap_new(0);
        void *block = ebb_heap_malloc(heap, 100), *other = ebb_heap_malloc(heap, 100);
        CHECK(block != NULL && other != NULL);
        free(block);
        free(block);
        _exit(1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    return 0;
}
