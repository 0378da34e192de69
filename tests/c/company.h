/* Shared by the programs of the scavenger: threads that make the library start it, how many threads
   there are, parts that run in children. */
#pragma once

#include "check.h"
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

enum { BLOCKS = 16 << 10, BLOCK = 1000, PATIENCE_MS = 20000 };

static void *blocks[BLOCKS];
static pthread_barrier_t barrier;

__attribute__((unused)) static void sleep_ms(long ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

/* Lists the threads by number. Returns how many there are. */
__attribute__((unused)) static int threads(pid_t *found, int most) {
    DIR *tasks = opendir("/proc/self/task");
    int n = 0;
    CHECK(tasks != NULL);
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;)
        if (entry->d_name[0] != '.' && n < most) found[n++] = atoi(entry->d_name);
    closedir(tasks);
    return n;
}

#define WAIT_UNTIL(condition)                                   \
    for (int waited = 0; !(condition); waited += 2) {           \
        CHECK(waited < PATIENCE_MS && #condition);              \
        sleep_ms(2);                                            \
    }

__attribute__((unused)) static void fill_heap(void) {
    for (int i = 0; i < BLOCKS; i++) {
        if (blocks[i] == NULL) blocks[i] = malloc(BLOCK);
        CHECK(blocks[i] != NULL);
    }
}

/* Allocates in bulk for `ms`. Threads that do this at the same time make the library start a
   scavenger. */
__attribute__((unused)) static void work_ms(int ms) {
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        void *some[64];
        for (int i = 0; i < 64; i++) some[i] = malloc(100000), CHECK(some[i] != NULL);
        for (int i = 0; i < 64; i++) free(some[i]);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < ms);
}

__attribute__((unused)) static void *work(void *ms) {
    work_ms((int)(intptr_t)ms);
    return NULL;
}

__attribute__((unused)) static void *work_and_wait(void *ms) {
    work(ms);
    pthread_barrier_wait(&barrier);
    return NULL;
}

enum { COMPANY = 2 };
static pthread_t company[COMPANY];

/* Starts threads that allocate, then wait at the barrier. Returns the scavenger's number. */
__attribute__((unused)) static pid_t in_company(void) {
    pid_t all[16];
    int n = 0;
    CHECK(pthread_barrier_init(&barrier, NULL, COMPANY + 1) == 0);
    fill_heap();
    for (int i = 0; i < COMPANY; i++)
        CHECK(pthread_create(&company[i], NULL, work_and_wait, (void *)40) == 0);
    WAIT_UNTIL((work_ms(5), n = threads(all, 16)) == COMPANY + 2);
    /* It started last, unless thread numbers have wrapped. */
    pid_t last = 0;
    for (int i = 0; i < n; i++) last = all[i] > last ? all[i] : last;
    return last;
}

__attribute__((unused)) static void leave_company(void) {
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < COMPANY; i++) CHECK(pthread_join(company[i], NULL) == 0);
}

/* Returns whether this process has one thread. The kernel refuses this call otherwise. */
__attribute__((unused)) static int is_alone(void) {
    int result = unshare(CLONE_SIGHAND);
    CHECK(result == 0 || errno == EINVAL);
    return result == 0;
}

/* Runs a part in a child, which must exit with `expected`, or with 77 if it is not possible. */
static void in_child(const char *name, int (*part)(void), int expected) {
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) alarm(50), exit(part());
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        fprintf(stderr, "%s: not possible here\n", name);
        return;
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != expected) {
        fprintf(stderr, "%s: status %#x\n", name, status);
        exit(1);
    }
}

#define IN_CHILD(part, expected) in_child(#part, part, expected)
