// fork while other threads make, use and delete heaps: the child uses these heaps and makes others.
// expect: exit 0
// ways: dynamic static
#include "check.h"
#include "ebbmalloc.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>

enum { THREADS = 4, FORKS = 12, KEPT = 100 };
static int stop;

static void use(ebb_heap *heap, uint32_t seed) {
    void *kept[KEPT] = {NULL};
    uint32_t state = seed;
    for (int step = 0; step < 500; step++) {
        unsigned slot = random32(&state) % KEPT;
        size_t size = random_size(&state) % 100000;
        if (step % 3 == 0) {
            kept[slot] = realloc(kept[slot], size + 1);
            if (kept[slot] == NULL) check_failed(__FILE__, __LINE__, "realloc");
        } else {
            free(kept[slot]);
            CHECK((kept[slot] = ebb_heap_malloc(heap, size)) != NULL);
        }
    }
    for (int slot = 0; slot < KEPT; slot += 2) free(kept[slot]);
}

static void *forever(void *seed) {
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        ebb_heap *heap = ebb_heap_new(0);
        CHECK(heap != NULL);
        use(heap, (uint32_t)(uintptr_t)seed);
        ebb_heap_delete(heap);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, forever, (void *)(i + 1)) == 0);
    ebb_heap *heap = ebb_heap_new(0);
    unsigned char *block = ebb_heap_malloc(heap, 1000);
    fill(block, 1000, 3);
    for (int i = 0; i < FORKS; i++) {
        use(heap, (uint32_t)i + 10);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            // If the child hangs, it must not outlive the test.
            alarm(20);
            CHECK(intact(block, 1000, 3));
            free(block);
            use(heap, 7);
            ebb_heap_delete(heap);
            ebb_heap *own = ebb_heap_new(0);
            use(own, 9);
            ebb_malloc_trim(0);
            ebb_heap_delete(own);
            _exit(0);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(intact(block, 1000, 3));
    ebb_heap_delete(heap);
    return 0;
}
