// Many threads do random operations of each kind on shared blocks, and check all contents.
// expect: exit 0
// ways: preload static
#include "check.h"
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>

enum { THREADS = 6, SLOTS = 4000, STEPS = 10000 };

struct head {
    size_t size, alignment;
    uint32_t seed;
};
static struct head *slots[SLOTS];

// Contents start behind the head and end at the last usable byte.
static void stamp(struct head *block, size_t alignment, uint32_t seed) {
    block->size = malloc_usable_size(block) - sizeof *block;
    block->alignment = alignment;
    block->seed = seed;
    fill(block + 1, block->size, seed);
}

static void verify(const struct head *block) {
    CHECK(aligned_to(block, block->alignment));
    CHECK(malloc_usable_size((void *)block) == block->size + sizeof *block);
    CHECK(intact(block + 1, block->size, block->seed));
}

static struct head *make(uint32_t *state) {
    size_t size = sizeof(struct head) + random_size(state), alignment = 16;
    struct head *block;
    switch (random32(state) % 6) {
    case 0:
        block = calloc(1, size);
        CHECK(block != NULL);
        for (size_t i = 0; i < size; i++) CHECK(((char *)block)[i] == 0);
        break;
    case 1:
        alignment = (size_t)16 << random32(state) % 10;
        block = aligned_alloc(alignment, size);
        break;
    case 2:
        alignment = (size_t)16 << random32(state) % 17;
        CHECK(posix_memalign((void **)&block, alignment, size) == 0);
        break;
    default: block = malloc(size);
    }
    CHECK(block != NULL);
    stamp(block, alignment, random32(state));
    return block;
}

static struct head *resize(struct head *block, uint32_t *state) {
    size_t size = random_size(state), kept = size < block->size ? size : block->size;
    uint32_t seed = block->seed;
    CHECK((block = realloc(block, sizeof *block + size)) != NULL);
    CHECK(intact(block + 1, kept, seed));
    stamp(block, 16, random32(state));
    return block;
}

static void *work(void *seed) {
    uint32_t state = (uint32_t)(uintptr_t)seed * 7919;
    for (int step = 0; step < STEPS; step++) {
        struct head **slot = &slots[random32(&state) % SLOTS];
        // The thread that takes a block out of its slot owns it until it puts it into another.
        struct head *block = __atomic_exchange_n(slot, NULL, __ATOMIC_ACQ_REL);
        if (block) verify(block);
        if (block == NULL) {
            block = make(&state);
        } else if (random32(&state) % 3 == 0) {
            block = resize(block, &state);
        } else {
            free(block);
            continue;
        }
        slot = &slots[random32(&state) % SLOTS];
        block = __atomic_exchange_n(slot, block, __ATOMIC_ACQ_REL);
        if (block) verify(block), free(block);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < SLOTS; i++)
        if (slots[i]) verify(slots[i]), free(slots[i]);
    return 0;
}
