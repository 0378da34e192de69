// fork while other threads allocate: both processes continue, the child with new threads.
// expect: exit 0
// check: no takes 14 s in check mode; fork_caches.c is a shorter one
#include "check.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>

enum { THREADS = 8, FORKS = 40, LONG_FORKS = 10000, KEPT = 64 };
static int stop;

static void churn(uint32_t seed, int steps) {
    static __thread struct {
        unsigned char *bytes;
        size_t size;
    } kept[KEPT];
    uint32_t state = seed;
    for (int step = 0; step < steps; step++) {
        unsigned slot = random32(&state) % KEPT;
        if (kept[slot].bytes) CHECK(intact(kept[slot].bytes, kept[slot].size, slot));
        // Never 0 bytes, for which realloc frees.
        size_t size = 1 + random_size(&state) % (random32(&state) % 64 ? 20000 : 300000);
        if (step % 5 == 0) {
            CHECK((kept[slot].bytes = realloc(kept[slot].bytes, size)) != NULL);
        } else {
            free(kept[slot].bytes);
            CHECK((kept[slot].bytes = malloc(size)) != NULL);
        }
        kept[slot].size = size;
        fill(kept[slot].bytes, size, slot);
    }
}

static void *forever(void *seed) {
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) churn((uint32_t)(uintptr_t)seed, 100);
    return NULL;
}

static void *briefly(void *seed) {
    churn((uint32_t)(uintptr_t)seed, 100);
    return NULL;
}

static void child(int number) {
    // If the child hangs, it must not outlive the test.
    alarm(20);
    churn((uint32_t)number + 77, 150);
    if (number % 4 == 0) {
        pthread_t threads[3];
        for (uintptr_t i = 0; i < 3; i++)
            CHECK(pthread_create(&threads[i], NULL, briefly, (void *)(i + 5)) == 0);
        for (int i = 0; i < 3; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    }
    if (number % 50 == 0) {
        // A grandchild.
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) churn(3, 100), _exit(0);
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    _exit(0);
}

int main(void) {
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, forever, (void *)(i + 1)) == 0);
    int forks = getenv("LONG") ? LONG_FORKS : FORKS;
    for (int i = 0; i < forks; i++) {
        churn((uint32_t)i + 1, 20);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) child(i);
        int status;
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == 0);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    return 0;
}
