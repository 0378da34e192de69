// A byte past the end or before the start of a block is seen when the block is freed.
// Or a guard page stops the write at once. Sizes are small and large.
// expect: exit 0
// harden: only
// ways: preload
#include "check.h"
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

/* Returns the signal that ends the child that writes at offset `at` of a block of `size` bytes,
   or 0. */
static int signal_of(size_t size, long at) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        close(STDERR_FILENO);
        char *last = NULL;
        for (int i = 0; i < 40; i++) {
            char *block = malloc(size);
            if (block > last) last = block;
        }
        OPAQUE(last)[at] ^= 1;
        free(last);
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

int main(void) {
    const size_t sizes[] = {0,    1,    16,    24,    25,    100,    1000,    1024,
                            4088, 4096, 20000, 65528, 65529, 100000, 1 << 17, 3 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t size = sizes[i];
        int behind = signal_of(size, (long)size);
        CHECK(behind == SIGABRT || (behind == SIGSEGV && size % 4096 == 0));
        CHECK(size == 0 || signal_of(size, (long)size - 1) == 0);
        if (size > 0 && size <= 1024) CHECK(signal_of(size, -1) == SIGABRT);
    }
    return 0;
}
