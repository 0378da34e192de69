// Neither a freed large block nor memory behind the last page of a live one is accessible.
// expect: exit 0
// harden: only
// ways: preload
#include "check.h"
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

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

int main(void) {
    for (size_t size = 1 << 17; size <= 16 << 20; size *= 2) {
        char *block = malloc(size);
        CHECK(signal_of(block) == 0 && signal_of(block + size - 1) == 0);
        CHECK(signal_of(block + size) == SIGSEGV);
        char *moved = realloc(block, size + 10);
        CHECK(moved && signal_of(moved + size) == 0);
        free(moved);
        CHECK(signal_of(moved) == SIGSEGV && signal_of(moved + size) == SIGSEGV);
    }
    return 0;
}
