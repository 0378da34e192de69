// A program with threads opens the library with dlopen and calls its prefixed functions.
// expect: exit 0
// ways: load
#include "check.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

enum { THREADS = 8, EARLY = 4, ROUNDS = 200, BLOCKS = 300 };
static void *(*allocate)(size_t);
static void (*release)(void *);
static pthread_barrier_t loaded;

static void *use(void *unused) {
    for (unsigned round = 0; round < ROUNDS; round++) {
        void *blocks[BLOCKS];
        for (unsigned i = 0; i < BLOCKS; i++) {
            CHECK((blocks[i] = allocate(i * 3)) != NULL);
            fill(blocks[i], i * 3, i + round);
        }
        for (unsigned i = 0; i < BLOCKS; i++) {
            CHECK(intact(blocks[i], i * 3, i + round));
            release(blocks[i]);
        }
    }
    return unused;
}

static void *early(void *unused) {
    pthread_barrier_wait(&loaded);
    return use(unused);
}

int main(void) {
    pthread_t threads[THREADS];
    CHECK(pthread_barrier_init(&loaded, NULL, EARLY + 1) == 0);
    for (int i = 0; i < EARLY; i++) CHECK(pthread_create(&threads[i], NULL, early, NULL) == 0);
    void *library = dlopen(getenv("LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    allocate = (void *(*)(size_t))dlsym(library, "ebb_malloc");
    release = (void (*)(void *))dlsym(library, "ebb_free");
    CHECK(allocate != NULL && release != NULL);
    pthread_barrier_wait(&loaded);
    for (int i = EARLY; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, use, NULL) == 0);
    use(NULL);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    return 0;
}
