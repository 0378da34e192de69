// A heap profile switched on and off hundreds of times while 100 threads allocate, and 50 children
// are forked meanwhile; with LONG, four times as often.
// expect: exit 0
// ways: dynamic
// check: no it is slow there
#include "check.h"
#include "ebbmalloc.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>

enum { THREADS = 100, SWITCHES = 250, CHILDREN = 50, AT_A_TIME = 8, KEPT = 32 };
static int stop, times = 1;

struct kept {
    unsigned char *bytes;
    size_t size;
};

/* Replaces blocks by others. Frees all at the end. */
static void churn(uint32_t seed, int steps) {
    struct kept kept[KEPT] = {{NULL, 0}};
    uint32_t state = seed;
    for (int step = 0; step < steps && !__atomic_load_n(&stop, __ATOMIC_RELAXED); step++) {
        unsigned slot = random32(&state) % KEPT;
        struct kept *old = &kept[slot];
        if (old->bytes) CHECK(intact(old->bytes, old->size, slot));
        size_t size = 1 + random_size(&state) % 9000;
        switch (step % 4) {
        case 0:
            CHECK((old->bytes = realloc(old->bytes, size)) != NULL);
            break;
        case 1:
            if (old->bytes) ebb_free_sized(old->bytes, old->size);
            CHECK((old->bytes = malloc(size)) != NULL);
            break;
        default:
            free(old->bytes);
            old->bytes = step % 4 == 2 ? malloc(size) : calloc(1, size);
            CHECK(old->bytes != NULL);
        }
        old->size = size;
        fill(old->bytes, size, slot);
    }
    for (unsigned slot = 0; slot < KEPT; slot++) {
        if (kept[slot].bytes) CHECK(intact(kept[slot].bytes, kept[slot].size, slot));
        free(kept[slot].bytes);
    }
}

static void *forever(void *seed) {
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) churn((uint32_t)(uintptr_t)seed, 300);
    return NULL;
}

static void wait_for_one(void) {
    int status;
    CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* The child of a process that is being profiled, or is not: goes on with that, and switches. */
static void child(int number, const char *path) {
    alarm(60);
    churn((uint32_t)number + 7, 200);
    CHECK(ebb_profile_start(200 + (size_t)number) == 0);
    churn((uint32_t)number + 8, 200);
    if (number % 20 == 0) {
        CHECK(ebb_profile_write(path) == 0);
    }
    ebb_profile_stop();
    churn((uint32_t)number + 9, 100);
    _exit(0);
}

static void *forks(void *path) {
    int running = 0;
    for (int number = 1; number <= times * CHILDREN; number++) {
        if (running == AT_A_TIME) wait_for_one(), running--;
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) child(number, path);
        running++;
    }
    while (running-- > 0) wait_for_one();
    return NULL;
}

int main(void) {
    if (getenv("LONG")) times = 4;
    char path[100];
    snprintf(path, sizeof path, "/tmp/ebb-profile-stress-%d.heap", (int)getpid());
    pthread_t threads[THREADS], forker;
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, forever, (void *)(i + 1)) == 0);
    CHECK(pthread_create(&forker, NULL, forks, path) == 0);
    for (int i = 0; i < times * SWITCHES; i++) {
        CHECK(ebb_profile_start(100 << i % 12) == 0);
        if (i % 16 == 0) usleep(2000);
        // Another thread never begins a profile, so this one is whole.
        if (i % 50 == 0) CHECK(ebb_profile_write(path) == 0);
        ebb_profile_stop();
    }
    CHECK(pthread_join(forker, NULL) == 0);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);

    // All blocks are free, so the last profile holds none.
    CHECK(ebb_profile_write(path) == 0);
    long live, bytes;
    FILE *file = fopen(path, "r");
    CHECK(file != NULL && fscanf(file, "heap profile: %ld: %ld", &live, &bytes) == 2);
    fclose(file);
    unlink(path);
    if (live > 2) fprintf(stderr, "%ld objects, %ld bytes\n", live, bytes);
    // Of pthread_create and stdio at most.
    CHECK(live <= 2);
    return 0;
}
