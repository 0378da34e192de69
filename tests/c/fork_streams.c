// fork does not deadlock with threads that read and flush streams, which allocates.
// A fork takes the locks of the stream list and of the allocator, and fflush(NULL) waits for
// streams whose readers wait for memory.
// expect: exit 0
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>

enum { FORKERS = 2, FORKS = 15, READERS = 4, LINE = 50000 };
static int stop;
static char name[] = "/tmp/fork_streams.XXXXXX";

static void *fork_often(void *none) {
    for (int i = 0; i < FORKS; i++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            // The child may use the streams too.
            FILE *file = fopen("/dev/null", "w");
            CHECK(file != NULL && fputs("child", file) >= 0 && fclose(file) == 0 &&
                  fflush(NULL) == 0);
            _exit(0);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    return none;
}

static void *read_lines(void *none) {
    FILE *file = fopen(name, "r");
    CHECK(file != NULL);
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        char *line = NULL;
        size_t room = 0;
        rewind(file);
        CHECK(getline(&line, &room, file) == LINE);
        free(line);
        usleep(50);
    }
    fclose(file);
    return none;
}

static void *flush(void *none) {
    // The locks are not fair: this thread pauses so that others get them.
    for (; !__atomic_load_n(&stop, __ATOMIC_RELAXED); usleep(100)) CHECK(fflush(NULL) == 0);
    return none;
}

int main(void) {
    static char line[LINE];
    memset(line, 'x', LINE);
    line[LINE - 1] = '\n';
    int file = mkstemp(name);
    CHECK(file >= 0 && write(file, line, LINE) == LINE && close(file) == 0);
    pthread_t forkers[FORKERS], others[READERS + 1];
    for (int i = 0; i <= READERS; i++)
        CHECK(pthread_create(&others[i], NULL, i ? read_lines : flush, NULL) == 0);
    for (int i = 0; i < FORKERS; i++)
        CHECK(pthread_create(&forkers[i], NULL, fork_often, NULL) == 0);
    for (int i = 0; i < FORKERS; i++) CHECK(pthread_join(forkers[i], NULL) == 0);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i <= READERS; i++) CHECK(pthread_join(others[i], NULL) == 0);
    CHECK(unlink(name) == 0);
    return 0;
}
