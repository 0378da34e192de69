// The library keeps no file open, except a copy of standard error to print statistics at exit.
// expect: exit 0
// harden: too
// check: no its messages need that copy as well
#include "check.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>

static int open_files(void) {
    int count = 0;
    for (int descriptor = 3; descriptor < 1024; descriptor++)
        count += fcntl(descriptor, F_GETFD) != -1;
    return count;
}

int main(int count, char **arguments) {
    free(malloc(OPAQUE(100)));
    if (count > 2) return open_files() == atoi(arguments[2]) ? 0 : 1;
    if (getenv("EBB_STATS") == NULL) _exit(1);
    int inherited = open_files() - 1;
    CHECK(inherited >= 0);
    char text[20];
    snprintf(text, sizeof text, "%d", inherited);
    int status;
    pid_t child = fork();
    if (child == 0) {
        unsetenv("EBB_STATS");
        execl("/proc/self/exe", arguments[0], "count", text, NULL);
        _exit(9);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return 0;
}
