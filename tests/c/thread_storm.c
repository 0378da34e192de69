// Thousands of threads start and end, and leave blocks that other threads free.
// expect: exit 0
// ways: preload static
#include "check.h"
#include <pthread.h>
#include <stdlib.h>

enum { ROUNDS = 200, LONG_ROUNDS = 2000, THREADS = 50, BLOCKS = 10, SHELF = 256 };

struct parcel {
    uint32_t size, seed;
    unsigned char bytes[];
};
static struct parcel *shelf[SHELF];

static void take(struct parcel *parcel) {
    if (parcel == NULL) return;
    CHECK(intact(parcel->bytes, parcel->size, parcel->seed));
    free(parcel);
}

static void *thread(void *number) {
    uint32_t state = (uint32_t)(uintptr_t)number * 2654435761u + 1;
    for (int i = 0; i < BLOCKS; i++) {
        uint32_t size = (uint32_t)random_size(&state), seed = random32(&state);
        struct parcel *parcel = malloc(sizeof *parcel + size);
        CHECK(parcel != NULL);
        parcel->size = size, parcel->seed = seed;
        fill(parcel->bytes, size, seed);
        // This thread frees the parcel that another one put there.
        take(__atomic_exchange_n(&shelf[random32(&state) % SHELF], parcel, __ATOMIC_ACQ_REL));
    }
    return NULL;
}

int main(void) {
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, 128 << 10) == 0);
    uintptr_t rounds = getenv("LONG") ? LONG_ROUNDS : ROUNDS;
    for (uintptr_t round = 0; round < rounds; round++) {
        pthread_t threads[THREADS];
        for (uintptr_t i = 0; i < THREADS; i++)
            CHECK(pthread_create(&threads[i], &attributes, thread,
                                 (void *)(round * THREADS + i + 1)) == 0);
        for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    }
    for (int i = 0; i < SHELF; i++) take(shelf[i]);
    return 0;
}
