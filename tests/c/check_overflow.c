// A byte past the end of a block is seen when the block is freed, for small and large sizes.
// expect: exit 0
// check: only
#include "check.h"
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

/* Returns whether the child that writes at offset `at` of a block of `size` bytes is stopped. */
static int is_stopped(size_t size, size_t at) {
    int status, ends[2];
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        char *block = malloc(size);
        OPAQUE(block)[at] = 1;
        free(block);
        _exit(0);
    }
    CHECK(child > 0 && close(ends[1]) == 0 && waitpid(child, &status, 0) == child);
    char said[64] = "";
    CHECK(read(ends[0], said, sizeof said - 1) >= 0 && close(ends[0]) == 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT &&
           strstr(said, "ebbmalloc: overflow: 0x") == said;
}

int main(void) {
    for (size_t size = 0; size <= 200; size++) {
        CHECK(is_stopped(size, size));
        CHECK(!is_stopped(size + 1, size));
    }
    const size_t others[] = {1000,  1024,  4096,   32768,   65520,  65535,
                             65536, 65537, 100000, 1 << 17, 3 << 20};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        CHECK(is_stopped(others[i], others[i]) && is_stopped(others[i], others[i] + 15));
        CHECK(!is_stopped(others[i], others[i] - 1));
    }
    return 0;
}
