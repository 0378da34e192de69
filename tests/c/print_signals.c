// Output at exit raises no signal: neither SIGPIPE (no reader) nor SIGXFSZ (file size limit).
// A signal that was pending before stays pending.
// expect: exit 0
// harden: too
// ways: preload dynamic static
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>

extern char **environ;

/* Returns how a program ends that leaves one block behind, with this descriptor as standard
   error. */
static int ends(const char *self, int errors, int no_files) {
    pid_t child = fork();
    if (child == 0) {
        dup2(errors, STDERR_FILENO);
        struct rlimit none = {0, 0};
        if (no_files) CHECK(setrlimit(RLIMIT_FSIZE, &none) == 0);
        char *arguments[] = {(char *)self, (char *)"child", NULL};
        execve("/proc/self/exe", arguments, environ);
        _exit(99);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

int main(int count, char **arguments) {
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    if (count > 1) {
        CHECK(OPAQUE(malloc(1000)) != NULL);
        return 7;
    }
    const char *settings[] = {"EBB_CHECK", "EBB_STATS"};
    for (int i = 0; i < 2; i++) {
        setenv(settings[i], "1", 1);
        char name[] = "print-XXXXXX";
        int file = mkstemp(name), pipes[2];
        CHECK(file >= 0 && unlink(name) == 0);
        CHECK(ends(arguments[0], file, 1) == 7);
        close(file);
        CHECK(pipe(pipes) == 0);
        close(pipes[0]);
        CHECK(ends(arguments[0], pipes[1], 0) == 7);
        close(pipes[1]);
    }
    return 0;
}
