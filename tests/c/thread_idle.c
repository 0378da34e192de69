// The caches of sleeping threads are emptied by malloc_trim, or by the scavenger without a call.
// malloc_trim leaves the caches of other CPUs, which it cannot stop. The threads continue
// undisturbed. The cache of a thread that ended behind the C library's back is emptied too,
// although its pages are gone.
// expect: exit 0
// ways: preload static
// check: no caches are not used in check mode
#include "check.h"
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

enum {
    THREADS = 48,
    SIZES = 24,
    EACH = 40,
    LIVE = 12 << 10,
    LIVE_SIZE = 1000,
    LEAST = 128 << 10,
    STACK = 256 << 10,
    STEP_MS = 20,
    PATIENCE_MS = 30000
};

static pthread_barrier_t asleep, awake;

static size_t size_of(int nth) { return 16 + (size_t)nth * 100; }

static void work(unsigned seed) {
    static __thread void *blocks[SIZES][EACH];
    for (int i = 0; i < SIZES; i++)
        for (int j = 0; j < EACH; j++) {
            blocks[i][j] = malloc(size_of(i));
            CHECK(blocks[i][j] != NULL);
            fill(blocks[i][j], size_of(i), seed + (unsigned)(i * EACH + j));
        }
    for (int i = 0; i < SIZES; i++)
        for (int j = 0; j < EACH; j++) {
            CHECK(intact(blocks[i][j], size_of(i), seed + (unsigned)(i * EACH + j)));
            free(blocks[i][j]);
        }
}

static void *sleep_and_work(void *number) {
    for (int round = 0; round < 3; round++) {
        work((unsigned)(uintptr_t)number * 7919);
        pthread_barrier_wait(&asleep);
        pthread_barrier_wait(&awake);
    }
    return NULL;
}

static void *vanish(void *unused) {
    work(1);
    syscall(SYS_exit, 0);
    return unused;
}

static void in_thread_that_vanishes(void) {
    pthread_t thread;
    pthread_attr_t attributes;
    void *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED && pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstack(&attributes, stack, STACK) == 0);
    CHECK(pthread_create(&thread, &attributes, vanish, NULL) == 0 &&
          pthread_join(thread, NULL) == 0);
    /* Its thread-local variables are there too. */
    CHECK(munmap(stack, STACK) == 0);
}

/* Returns the free and resident bytes. */
static size_t idle(void) { return mallinfo2().fordblks; }

int main(void) {
    static void *live[LIVE];
    pthread_t threads[THREADS];
    CHECK(pthread_barrier_init(&asleep, NULL, THREADS + 1) == 0);
    CHECK(pthread_barrier_init(&awake, NULL, THREADS + 1) == 0);
    /* With less memory in use, the library looks for no memory to purge. */
    for (int i = 0; i < LIVE; i++) {
        live[i] = malloc(LIVE_SIZE);
        CHECK(live[i] != NULL);
        fill(live[i], LIVE_SIZE, (unsigned)i);
    }
    in_thread_that_vanishes();
    malloc_trim(0);
    /* Free memory between the blocks in use. */
    size_t least = idle();
    int percpu = getenv("EBB_MODE") && !strcmp(getenv("EBB_MODE"), "percpu");
    CHECK(percpu || least < LEAST);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, sleep_and_work, (void *)i) == 0);

    pthread_barrier_wait(&asleep);
    size_t before = idle();
    malloc_trim(0);
    size_t after = idle();
    fprintf(stderr, "free and resident: %zu, then %zu after a trim, of which %zu were there\n",
            before, after, least);
    CHECK(percpu || after < least + (before - least) / 10);
    pthread_barrier_wait(&awake);

    pthread_barrier_wait(&asleep);
    for (int waited = 0; idle() > least + (before - least) / 10; waited += STEP_MS) {
        CHECK(waited < PATIENCE_MS);
        nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000L}, NULL);
    }
    pthread_barrier_wait(&awake);

    pthread_barrier_wait(&asleep);
    for (int i = 0; i < LIVE; i++) CHECK(intact(live[i], LIVE_SIZE, (unsigned)i)), free(live[i]);
    pthread_barrier_wait(&awake);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    return 0;
}
