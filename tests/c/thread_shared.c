// Without rseq, which glibc is told not to register here, threads beyond a number share caches.
// The first threads have caches of their own. All threads are served, also in children forked while
// others work, and threads that come when others have gone.
// expect: exit 0
// ways: preload static
#include "check.h"
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>

enum { MOST = 200, FORKS = 6, KEPT = 64, STEPS = 200 };
static int stop;

static void churn(uint32_t seed, int steps) {
    unsigned char *kept[KEPT] = {NULL};
    size_t sizes[KEPT];
    uint32_t state = seed;
    for (int step = 0; step < steps; step++) {
        unsigned at = random32(&state) % KEPT;
        if (kept[at]) CHECK(intact_sample(kept[at], sizes[at], sizes[at], seed + at));
        free(kept[at]);
        sizes[at] = 1 + random_size(&state) % 3000;
        CHECK((kept[at] = malloc(sizes[at])) != NULL);
        fill_sample(kept[at], sizes[at], seed + at);
    }
    for (int at = 0; at < KEPT; at++) free(kept[at]);
}

static void *forever(void *seed) {
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) churn((uint32_t)(uintptr_t)seed, STEPS);
    return NULL;
}

static void *briefly(void *seed) {
    churn((uint32_t)(uintptr_t)seed, STEPS);
    return NULL;
}

static void start(pthread_t *threads, int count, void *(*work)(void *)) {
    for (uintptr_t i = 0; i < (uintptr_t)count; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
}

static void join(pthread_t *threads, int count) {
    for (int i = 0; i < count; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

static void expect_success(pid_t pid) {
    int status;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
          WEXITSTATUS(status) == 0);
}

// Runs in a process that was started without rseq.
static int without(void) {
    static pthread_t threads[MOST], others[MOST];
    // Up to four threads for each CPU have caches of their own.
    long cpus = sysconf(_SC_NPROCESSORS_CONF);
    int count = cpus > 0 && 8 * cpus < MOST ? (int)(8 * cpus) : MOST;
    start(threads, count, forever);
    for (int i = 0; i < FORKS; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            // If the child hangs, it must not outlive the test.
            alarm(20);
            start(others, 3, briefly);
            join(others, 3);
            _exit(0);
        }
        expect_success(pid);
        malloc_trim(0);
    }
    // These threads find all caches taken; those after them find free ones.
    start(others, count, briefly);
    join(others, count);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    join(threads, count);
    start(others, count, briefly);
    join(others, count);
    malloc_trim(0);
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1) return without();
    int said[2];
    CHECK(pipe(said) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(dup2(said[1], STDERR_FILENO) >= 0);
        CHECK(setenv("GLIBC_TUNABLES", "glibc.pthread.rseq=0", 1) == 0 &&
              setenv("EBB_EXPLAIN", "1", 1) == 0);
        CHECK(unsetenv("EBB_MODE") == 0 && unsetenv("EBB_STATS") == 0);
        execv(argv[0], (char *[]){argv[0], "without", NULL});
        _exit(77);
    }
    close(said[1]);
    char text[4096];
    size_t length = 0;
    for (ssize_t more; (more = read(said[0], text + length, sizeof text - 1 - length)) > 0;)
        length += (size_t)more;
    text[length] = 0;
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        // For example in an emulator, for which the kernel would not start it.
        fputs("another program cannot be started here\n", stderr);
        return 77;
    }
    int served = strstr(text, "mode thread (GLIBC_TUNABLES has glibc.pthread.rseq=0") != NULL;
    int well =
        WIFEXITED(status) && WEXITSTATUS(status) == 0 && (served || !strstr(text, "ebbmalloc"));
    if (!well) fputs(text, stderr);
    CHECK(well);
    return 0;
}
