// Several processes and threads write their heap profiles to the same file at the same time: each
// succeeds, the file is a whole one, and no part of another stays.
// expect: exit 0
// ways: dynamic
// check: no it is slow there
#include "files.h"
#include "ebbmalloc.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>

enum { WRITERS = 4, TIMES = 60 };
static char directory[] = "/tmp/ebb-together-XXXXXX", path[100];

static void *write_often(void *unused) {
    for (int i = 0; i < TIMES; i++) CHECK(ebb_profile_write(path) == 0);
    return unused;
}

int main(void) {
    CHECK(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/heap", directory);
    CHECK(ebb_profile_start(1000) == 0);
    for (int i = 0; i < 1000; i++) CHECK(OPAQUE(malloc(1000)) != NULL);
    CHECK(ebb_profile_write(path) == 0);
    pthread_t threads[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) write_often(NULL), _exit(0);
    }
    for (int i = 0; i < WRITERS; i++)
        CHECK(pthread_create(&threads[i], NULL, write_often, NULL) == 0);
    for (int i = 0; i < WRITERS; i++) {
        int status;
        CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    char start[14] = "";
    FILE *file = fopen(path, "r");
    CHECK(file != NULL && fread(start, 1, 13, file) == 13 && strcmp(start, "heap profile:") == 0);
    fclose(file);
    CHECK(files_in(directory) == 1 && remove(path) == 0 && rmdir(directory) == 0);
    return 0;
}
