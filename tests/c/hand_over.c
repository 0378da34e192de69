// Producers allocate, consumers check and free: no block ever belongs to both.
// expect: exit 0
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

enum { PAIRS = 3, BLOCKS = 150000, RING = 1024 };

struct ring {
    void *slots[RING];
    unsigned head, tail;
};
static struct ring rings[PAIRS];

struct block {
    uint32_t number, size;
    unsigned char bytes[];
};

static void *produce(void *ring_) {
    struct ring *ring = ring_;
    uint32_t state = 99;
    for (uint32_t number = 0; number < BLOCKS; number++) {
        uint32_t size = random32(&state) % (number % 100 == 0 ? 40000 : 200);
        struct block *block = malloc(sizeof *block + size);
        CHECK(block != NULL);
        block->number = number, block->size = size;
        fill(block->bytes, size, number);
        while (ring->head - __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE) == RING) sched_yield();
        ring->slots[ring->head % RING] = block;
        __atomic_store_n(&ring->head, ring->head + 1, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void *consume(void *ring_) {
    struct ring *ring = ring_;
    for (uint32_t number = 0; number < BLOCKS; number++) {
        while (__atomic_load_n(&ring->head, __ATOMIC_ACQUIRE) == ring->tail) sched_yield();
        struct block *block = ring->slots[ring->tail % RING];
        __atomic_store_n(&ring->tail, ring->tail + 1, __ATOMIC_RELEASE);
        CHECK(block->number == number && intact(block->bytes, block->size, number));
        memset(block, 0xdd, sizeof *block + block->size);
        free(block);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[2 * PAIRS];
    for (int i = 0; i < PAIRS; i++) {
        CHECK(pthread_create(&threads[2 * i], NULL, produce, &rings[i]) == 0);
        CHECK(pthread_create(&threads[2 * i + 1], NULL, consume, &rings[i]) == 0);
    }
    for (int i = 0; i < 2 * PAIRS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    return 0;
}
