/* Threads that use the functions of a shim, while the process forks. */
#pragma once

#include "check.h"
#include <pthread.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4 };

/* Runs `work` in each thread, with its number, and `in_child` in children of forks meanwhile. */
static void threads_and_fork(void *(*work)(void *), void (*in_child)(void)) {
    pthread_t ids[THREADS];
    for (intptr_t t = 0; t < THREADS; t++)
        CHECK(pthread_create(&ids[t], NULL, work, (void *)t) == 0);
    for (int i = 0; i < 10; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            in_child();
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    for (int t = 0; t < THREADS; t++) CHECK(pthread_join(ids[t], NULL) == 0);
}
