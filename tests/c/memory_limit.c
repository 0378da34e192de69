// Beyond EBB_LIMIT: NULL and ENOMEM, realloc leaves its block, freed memory is available again.
// expect: exit 0
// check: no takes 11 s in check mode
#include "check.h"
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>

enum { LIMIT = 64 << 20, MOST = 1 << 20 };
static void *blocks[MOST];

static size_t resident(void) {
    size_t all = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%zu %zu", &all, &pages) == 2);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

// Allocates until it fails. Returns how many blocks there were.
static size_t take_all(size_t size) {
    for (size_t count = 0; count < MOST; count++) {
        errno = 0;
        if ((blocks[count] = malloc(size)) == NULL) {
            CHECK(errno == ENOMEM);
            return count;
        }
        memset(blocks[count], 1, size);
    }
    CHECK(!"no limit");
    return 0;
}

static void free_all(size_t count) {
    for (size_t i = 0; i < count; i++) free(blocks[i]);
}

static void *of_a_thread(void *unused) {
    (void)unused;
    size_t count = take_all(10000);
    free_all(count);
    return (void *)count;
}

static int limited(void) {
    FILE *warm = fopen("/proc/self/statm", "r");
    CHECK(warm != NULL && fclose(warm) == 0);
    size_t before = resident();
    static const size_t sizes[] = {3 << 20, 100000, 20000, 1000, 100};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t count = take_all(sizes[i]);
        // A block of 100 bytes takes 112, one of 100,000 takes two units of 64 KiB.
        CHECK(count * sizes[i] <= LIMIT && count * sizes[i] >= LIMIT / 100 * 65);
        size_t more = i < 3 ? LIMIT : sizes[i] * 10000;
        fill(blocks[count - 1], sizes[i], 5);
        errno = 0;
        CHECK(realloc(blocks[count - 1], more) == NULL && errno == ENOMEM);
        CHECK(intact(blocks[count - 1], sizes[i], 5));
        errno = 0;
        CHECK(calloc(1, LIMIT) == NULL && errno == ENOMEM);
        free_all(count);
    }
    // 8 MiB for the list of blocks of this program; tables and caches are the rest.
    CHECK(resident() < before + LIMIT + (12 << 20));

    // A child has the same limit, has reached it at the fork, and can reuse what it frees.
    size_t count = take_all(50000);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(malloc(50000) == NULL && errno == ENOMEM);
        free_all(count);
        CHECK(take_all(50000) >= count / 10 * 9);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(malloc(50000) == NULL);
    free_all(count);

    pthread_t thread;
    void *taken;
    CHECK(pthread_create(&thread, NULL, of_a_thread, NULL) == 0);
    CHECK(pthread_join(thread, &taken) == 0);
    CHECK((size_t)taken * 10000 >= LIMIT / 2 && (size_t)taken * 10000 <= LIMIT);
    return 0;
}

int main(int count, char **arguments) {
    (void)count;
    if (getenv("EBB_LIMIT") != NULL) return limited();
    // Without a limit, twice as much can be allocated.
    void *block = malloc(2 * (size_t)LIMIT);
    CHECK(block != NULL);
    memset(block, 1, 2 * (size_t)LIMIT);
    free(block);
    CHECK(setenv("EBB_LIMIT", "64MiB", 1) == 0);
    execv("/proc/self/exe", arguments);
    CHECK(!"executed");
}
