/* Whether memory is accessible, which a child tries. */
#pragma once

#include "check.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* The signal that reading a byte raises, 0 for none. */
static int signal_of(const char *at) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        (void)*(volatile const char *)at;
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}
