// Threads exit and leave blocks, which other threads free meanwhile and later; no memory is lost.
// expect: exit 0
// check: no its sums count what check mode holds back
#include "check.h"
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>

enum { MAKERS = 1500, AT_ONCE = 3, FREERS = 2, BLOCKS = 300, RING = 1 << 14 };

struct parcel {
    size_t size;
    unsigned seed;
    unsigned char bytes[];
};
static struct parcel *ring[RING];
static unsigned put, taken;
static int made;

static void *make(void *number) {
    uint32_t state = (uint32_t)(uintptr_t)number + 1;
    for (int i = 0; i < BLOCKS; i++) {
        size_t size = 1 + random32(&state) % 600;
        struct parcel *parcel = malloc(sizeof *parcel + size);
        CHECK(parcel != NULL);
        parcel->size = size, parcel->seed = state;
        fill(parcel->bytes, size, state);
        unsigned at = __atomic_fetch_add(&put, 1, __ATOMIC_RELAXED) % RING;
        struct parcel *none = NULL;
        while (!__atomic_compare_exchange_n(&ring[at], &none, parcel, 0, __ATOMIC_RELEASE,
                                            __ATOMIC_RELAXED))
            none = NULL, sched_yield();
    }
    return NULL;
}

static void *release(void *unused) {
    for (;;) {
        unsigned at = __atomic_fetch_add(&taken, 1, __ATOMIC_RELAXED);
        if (at >= MAKERS * BLOCKS) return unused;
        struct parcel *parcel;
        while ((parcel = __atomic_exchange_n(&ring[at % RING], NULL, __ATOMIC_ACQUIRE)) == NULL)
            sched_yield();
        CHECK(intact(parcel->bytes, parcel->size, parcel->seed));
        free(parcel);
        __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED);
    }
}

int main(void) {
    pthread_t freers[FREERS];
    size_t before = mallinfo2().uordblks;
    for (int i = 0; i < FREERS; i++) CHECK(pthread_create(&freers[i], NULL, release, NULL) == 0);
    for (uintptr_t round = 0; round < MAKERS / AT_ONCE; round++) {
        pthread_t makers[AT_ONCE];
        for (uintptr_t i = 0; i < AT_ONCE; i++)
            CHECK(pthread_create(&makers[i], NULL, make, (void *)(round * AT_ONCE + i)) == 0);
        for (int i = 0; i < AT_ONCE; i++) CHECK(pthread_join(makers[i], NULL) == 0);
    }
    for (int i = 0; i < FREERS; i++) CHECK(pthread_join(freers[i], NULL) == 0);
    CHECK(made == MAKERS * BLOCKS);
    malloc_trim(0);
    struct mallinfo2 after = mallinfo2();
    CHECK(after.uordblks < before + (64 << 10));
    CHECK(after.fordblks < 8 << 20);
    return 0;
}
