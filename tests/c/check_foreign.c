// Free of addresses that no block ever began at: on the stack, in static memory, in a mapping.
// expect: exit 0
// check: only
#include "check.h"
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

static char fixed[64] __attribute__((aligned(64)));

static int is_stopped(void *address) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        close(STDERR_FILENO);
        free(address);
        _exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

int main(void) {
    char local[64];
    void *mapped = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(is_stopped(OPAQUE(&local[16])) && is_stopped(OPAQUE(&fixed[0])) && is_stopped(mapped));
    CHECK(is_stopped((void *)OPAQUE((uintptr_t)0xdead0000beef0000u)));
    return 0;
}
