// A process with one thread forks in a signal handler that interrupted malloc or free.
// Both processes continue that call. glibc allows it; POSIX.1-2024 no longer does.
// expect: exit 0
// ways: preload static
// harden: too
#include "check.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { BLOCKS = 400, CHILDREN = 40, IN_CHILD = 1000 };

static volatile sig_atomic_t children, left = -1;

static void fork_here(int signal_number) {
    (void)signal_number;
    int saved = errno, status;
    if (left >= 0 || children >= CHILDREN) return;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        left = IN_CHILD;
    } else {
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
        children++;
    }
    errno = saved;
}

int main(void) {
    static unsigned char *blocks[BLOCKS];
    static size_t sizes[BLOCKS];
    uint32_t seed = 1;
    struct sigaction action = {.sa_handler = fork_here, .sa_flags = SA_RESTART};
    struct itimerval every = {{0, 300}, {0, 300}};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &every, NULL) == 0);
    while (children < CHILDREN) {
        int i = (int)(random32(&seed) % BLOCKS);
        CHECK(blocks[i] == NULL || intact(blocks[i], sizes[i] < 64 ? sizes[i] : 64, (unsigned)i));
        free(blocks[i]);
        /* Mostly sizes that bypass the caches. */
        sizes[i] = random32(&seed) % 4 ? 1 + random32(&seed) % 200000 : 1 + random32(&seed) % 500;
        blocks[i] = malloc(sizes[i]);
        CHECK(blocks[i] != NULL);
        fill(blocks[i], sizes[i] < 64 ? sizes[i] : 64, (unsigned)i);
        if (left >= 0 && left-- == 0) _exit(0);
    }
    return 0;
}
