// EBB_PROFILE_TO counts as it was when the program started, whatever becomes of its environment.
// expect: exit 0
// env: EBB_PROFILE=1
// env: EBB_PROFILE_AT=signal:USR2
// env: EBB_PROFILE_TO=/tmp
#define _GNU_SOURCE
#include "check.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(void) {
    char path[100];
    snprintf(path, sizeof path, "/tmp/ebb.%d.1.heap", (int)getpid());
    CHECK(setenv("EBB_PROFILE_TO", "/no/such/directory", 1) == 0);
    CHECK(raise(SIGUSR2) == 0);
    /* The next allocation writes the file. */
    void *block = malloc(100);
    CHECK(block != NULL);
    free(block);
    CHECK(access(path, R_OK) == 0);
    CHECK(unlink(path) == 0);
    return 0;
}
