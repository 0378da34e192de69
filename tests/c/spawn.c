// vfork, posix_spawn, popen and system in a process whose other threads allocate.
// expect: exit 0
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>

extern char **environ;
static int stop;

static void *churn(void *unused) {
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
        for (size_t size = 1; size < 200000; size = size * 5 / 4 + 1) free(malloc(size));
    return unused;
}

static void ended_well(pid_t pid) {
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, churn, NULL) == 0);
    char *arguments[] = {"true", NULL};
    for (int i = 0; i < 15; i++) {
        pid_t pid = vfork();
        if (pid == 0) {
            execve("/bin/true", arguments, environ);
            _exit(127);
        }
        CHECK(pid > 0);
        ended_well(pid);

        CHECK(posix_spawn(&pid, "/bin/true", NULL, NULL, arguments, environ) == 0);
        ended_well(pid);

        char line[100] = "";
        FILE *pipe = popen("echo spoken; exit 3", "r");
        CHECK(pipe != NULL);
        CHECK(fgets(line, sizeof line, pipe) != NULL && strcmp(line, "spoken\n") == 0);
        CHECK(WEXITSTATUS(pclose(pipe)) == 3);

        CHECK(system("exit 5") == 5 << 8);
        free(realloc(malloc(100), 100000));
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 3; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    return 0;
}
