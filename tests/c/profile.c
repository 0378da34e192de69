// The functions for heap profiles: switched on and off, written to a file, with threads and a fork.
// expect: exit 0
// ways: dynamic static
#define _GNU_SOURCE
#include "check.h"
#include "ebbmalloc.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *churn(void *stop) {
    for (unsigned i = 0; !__atomic_load_n((int *)stop, __ATOMIC_RELAXED); i++) {
        char *block = malloc(i % 700 + 1);
        CHECK(block != NULL);
        block[0] = 1;
        block = realloc(block, i % 900 + 1);
        CHECK(block != NULL && block[0] == 1);
        free(block);
    }
    return NULL;
}

/* Objects that the first line of the file says are live, and the file's mean. */
static long written(const char *path, long *mean) {
    long live, bytes, all, all_bytes;
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    CHECK(fscanf(file, "heap profile: %ld: %ld [%ld: %ld] @ heap_v2/%ld", &live, &bytes, &all,
                 &all_bytes, mean) == 5);
    fclose(file);
    return live;
}

int main(void) {
    char path[100];
    snprintf(path, sizeof path, "/tmp/ebb-profile-test-%d.heap", (int)getpid());
    CHECK(ebb_profile_write(path) == -1 && errno == EINVAL);
    CHECK(ebb_profile_start(1000) == 0);
    enum { BLOCKS = 20000 };
    static void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) CHECK((blocks[i] = malloc(100)) != NULL);
    long mean = 0;
    CHECK(ebb_profile_write(path) == 0);
    long live = written(path, &mean);
    CHECK(mean == 1000 && live > 1000 && live < 3000);
    CHECK(ebb_profile_write("/no/such/directory") == -1 && errno == EIO);
    CHECK(ebb_profile_write(NULL) == -1 && errno == EINVAL);

    /* On and off under load, with children that profile too. */
    int stop = 0;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, churn, &stop) == 0);
    for (int i = 0; i < 15; i++) {
        CHECK(ebb_profile_start(500 + i) == 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            for (int j = 0; j < 2000; j++) free(malloc(j));
            CHECK(ebb_profile_start(100) == 0);
            for (int j = 0; j < 2000; j++) free(malloc(j));
            ebb_profile_stop();
            _exit(0);
        }
        ebb_profile_stop();
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    stop = 1;
    for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);

    /* What is freed after the end is subtracted. */
    CHECK(ebb_profile_start(1000) == 0);
    for (int i = 0; i < BLOCKS; i++) CHECK((blocks[i] = realloc(blocks[i], 120)) != NULL);
    ebb_profile_stop();
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    CHECK(ebb_profile_write(path) == 0);
    CHECK(written(path, &mean) == 0);
    unlink(path);
    return 0;
}
