// A thread that ends the scavenger waits for it, and that wait is no cancellation point.
// The child of a raw clone(2) has no scavenger, and does not wait.
// expect: exit 0
// check: no nothing is freed at once there
// ways: preload static
#define _GNU_SOURCE
#include "check.h"
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BLOCKS = 16 << 10, BLOCK = 1000, PATIENCE_MS = 5000, WORKERS = 2, LIMIT_S = 50 };

static void *blocks[BLOCKS];
static pthread_barrier_t barrier;

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void fill_heap(void) {
    for (int i = 0; i < BLOCKS; i++) blocks[i] = malloc(BLOCK), CHECK(blocks[i] != NULL);
}

static void work_ms(int ms) {
    long end = now_ms() + ms;
    do {
        void *some[64];
        for (int i = 0; i < 64; i++) some[i] = malloc(100000), CHECK(some[i] != NULL);
        for (int i = 0; i < 64; i++) free(some[i]);
    } while (now_ms() < end);
}

static int threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    int n = -2;
    CHECK(tasks != NULL);
    while (readdir(tasks) != NULL) n++;
    closedir(tasks);
    return n;
}

/* Works until the scavenger is there, if it starts. */
static void *work(void *number) {
    for (long end = now_ms() + PATIENCE_MS; now_ms() < end && threads() < WORKERS + 2;) work_ms(10);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return number;
}

static pthread_t workers[WORKERS];

static void start_workers(void) {
    CHECK(pthread_barrier_init(&barrier, NULL, WORKERS + 1) == 0);
    for (long i = 0; i < WORKERS; i++)
        CHECK(pthread_create(&workers[i], NULL, work, (void *)(i + 1)) == 0);
    pthread_barrier_wait(&barrier);
}

/* The threads are canceled but reach no cancellation point any more, nor does the library. */
static void canceled(void) {
    start_workers();
    for (int i = 0; i < WORKERS; i++) CHECK(pthread_cancel(workers[i]) == 0);
    pthread_barrier_wait(&barrier);
    for (long i = 0; i < WORKERS; i++) {
        void *result;
        CHECK(pthread_join(workers[i], &result) == 0);
        CHECK(result == (void *)(i + 1));
    }
}

static void raw_child(void) {
    start_workers();
    long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    CHECK(child >= 0);
    if (child == 0) {
        alarm(LIMIT_S);
        work_ms(300);
        for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
        work_ms(300);
        _exit(0);
    }
    int status;
    CHECK(waitpid((pid_t)child, &status, 0) == child);
    CHECK(status == 0);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < WORKERS; i++) CHECK(pthread_join(workers[i], NULL) == 0);
}

int main(void) {
    alarm(LIMIT_S + 5);
    fill_heap();
    for (int round = 0; round < 3; round++) canceled();
    raw_child();
    return 0;
}
