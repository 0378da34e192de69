// Several threads trim while others allocate and the process forks.
// Each child finds its heap intact, and trims too.
// expect: exit 0
// ways: preload static
// check: no takes a minute in check mode on a busy machine
#include "check.h"
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>

enum { WORKERS = 3, TRIMMERS = 2, FORKS = 12, KEPT = 400 };

static int over;

static void churn(void **kept, uint32_t *state, unsigned seed) {
    uint32_t at = random32(state) % KEPT;
    if (kept[at]) {
        size_t size = *(size_t *)kept[at];
        CHECK(intact((char *)kept[at] + sizeof size, size, seed + at));
        free(kept[at]);
    }
    size_t size = random32(state) % (random32(state) % 16 ? 2000 : 200000);
    kept[at] = malloc(sizeof size + size);
    CHECK(kept[at] != NULL);
    *(size_t *)kept[at] = size;
    fill((char *)kept[at] + sizeof size, size, seed + at);
}

static void *work(void *number) {
    uint32_t state = (uint32_t)(uintptr_t)number * 7919 + 1;
    void **kept = calloc(KEPT, sizeof *kept);
    CHECK(kept != NULL);
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED))
        churn(kept, &state, (unsigned)(uintptr_t)number);
    for (int i = 0; i < KEPT; i++) free(kept[i]);
    free(kept);
    return NULL;
}

static void *trim(void *unused) {
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) malloc_trim(0);
    return unused;
}

int main(void) {
    pthread_t threads[WORKERS + TRIMMERS];
    for (uintptr_t i = 0; i < WORKERS + TRIMMERS; i++)
        CHECK(pthread_create(&threads[i], NULL, i < WORKERS ? work : trim, (void *)(i + 1)) == 0);
    uint32_t state = 1;
    void **kept = calloc(KEPT, sizeof *kept);
    CHECK(kept != NULL);
    for (int i = 0; i < FORKS; i++) {
        for (int j = 0; j < 50; j++) churn(kept, &state, 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            for (int j = 0; j < 100; j++) churn(kept, &state, 0);
            malloc_trim(0);
            for (int j = 0; j < 100; j++) churn(kept, &state, 0);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < WORKERS + TRIMMERS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    return 0;
}
