// Destructors of thread-specific data allocate, and free blocks of this and other threads.
// expect: exit 0
#include "check.h"
#include <pthread.h>
#include <stdlib.h>

enum { THREADS = 16, ROUNDS = 60, KEYS = 8 };
static pthread_key_t keys[KEYS];
static __thread int again;
static int destroyed;

struct made {
    size_t size;
    unsigned char bytes[];
};

static struct made *make(size_t size) {
    struct made *made = malloc(sizeof *made + size);
    CHECK(made != NULL);
    made->size = size;
    fill(made->bytes, size, (unsigned)size);
    return made;
}

static void destroy(void *value) {
    struct made *made = value;
    CHECK(intact(made->bytes, made->size, (unsigned)made->size));
    free(made);
    free(make(300));
    // Because a value is set again, the C library calls the destructor once more.
    if (again++ < 20) CHECK(pthread_setspecific(keys[again % KEYS], make(40 * (size_t)again)) == 0);
    __atomic_add_fetch(&destroyed, 1, __ATOMIC_RELAXED);
}

static void *thread(void *made_by_main) {
    for (int i = 1; i < KEYS; i++) CHECK(pthread_setspecific(keys[i], make(100 * (size_t)i)) == 0);
    // Only the destructor, in this thread, frees it.
    CHECK(pthread_setspecific(keys[0], made_by_main) == 0);
    return make(5000);
}

int main(void) {
    for (int i = 0; i < KEYS; i++) CHECK(pthread_key_create(&keys[i], destroy) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[THREADS];
        for (size_t i = 0; i < THREADS; i++)
            CHECK(pthread_create(&threads[i], NULL, thread, make(1 + i * 999)) == 0);
        for (int i = 0; i < THREADS; i++) {
            void *result;
            CHECK(pthread_join(threads[i], &result) == 0);
            struct made *made = result;
            CHECK(intact(made->bytes, made->size, (unsigned)made->size));
            free(made);
        }
    }
    CHECK(destroyed >= THREADS * ROUNDS * KEYS);
    return 0;
}
