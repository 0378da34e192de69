// EBB_STATS_TO counts as it was when the program started, whatever becomes of its environment; and
// `%p` is the process that ends.
// expect: exit 0
#define _GNU_SOURCE
#include "check.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Forks, and changes the environment of the child, which ends with statistics. */
static int with_statistics(void) {
    free(OPAQUE(malloc(100)));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(setenv("EBB_STATS_TO", "/no/such/directory/file", 1) == 0);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    char path[100], text[100] = "";
    snprintf(path, sizeof path, "/tmp/ebb-stats.%d", (int)child);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL && fgets(text, sizeof text, file) != NULL && text[0] == '{');
    fclose(file);
    CHECK(unlink(path) == 0);
    /* This process's own file would stay. */
    _exit(0);
}

int main(int arguments, char **argument) {
    if (arguments > 1) return with_statistics();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(setenv("EBB_STATS", "json", 1) == 0);
        CHECK(setenv("EBB_STATS_TO", "/tmp/ebb-stats.%p", 1) == 0);
        execl("/proc/self/exe", argument[0], "again", NULL);
        _exit(1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}
