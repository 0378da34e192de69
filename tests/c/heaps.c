// Heaps delete their blocks together and have a limit; the functions of malloc.h take their blocks.
// expect: exit 0
// check: no used bytes and limits count what check mode adds
// ways: dynamic static
#include "check.h"
#include "ebbmalloc.h"
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>

enum { BLOCKS = 2000, THREADS = 4 };

static void contract(void) {
    ebb_heap *heap = ebb_heap_new(0);
    CHECK(heap != NULL && ebb_heap_used(heap) == 0);
    unsigned char *block = ebb_heap_malloc(heap, 100);
    CHECK(block != NULL && malloc_usable_size(block) >= 100 && aligned_to(block, 16));
    CHECK(ebb_heap_used(heap) == malloc_usable_size(block));
    fill(block, 100, 1);
    // Resized by either function, a block stays in its heap: small, large, in place, and back.
    size_t sizes[] = {5000, 70000, 3000000, 200000, 100};
    for (int i = 0; i < 5; i++) {
        block = i % 2 ? realloc(block, sizes[i]) : ebb_heap_realloc(heap, block, sizes[i]);
        CHECK(block != NULL && intact(block, 100, 1));
        CHECK(ebb_heap_used(heap) == malloc_usable_size(block) &&
              malloc_usable_size(block) >= sizes[i]);
    }
    CHECK(ebb_heap_realloc(heap, block, 0) == NULL && ebb_heap_used(heap) == 0);

    CHECK((block = ebb_heap_calloc(heap, 300, 1000)) != NULL);
    for (int i = 0; i < 300000; i++) CHECK(block[i] == 0);
    free(block);
    CHECK((block = ebb_heap_realloc(heap, NULL, 10)) != NULL);
    ebb_free(block);
    for (size_t alignment = 1; alignment <= 1 << 21; alignment *= 2) {
        CHECK((block = ebb_heap_aligned_alloc(heap, alignment, 10)) != NULL &&
              aligned_to(block, alignment));
        ebb_free(block);
    }
    void *empty[] = {ebb_heap_malloc(heap, 0), ebb_heap_malloc(heap, 0)};
    CHECK(empty[0] != NULL && empty[1] != NULL && empty[0] != empty[1]);

    errno = 0;
    CHECK(ebb_heap_aligned_alloc(heap, 24, 10) == NULL && errno == EINVAL);
    errno = 0;
    CHECK(ebb_heap_calloc(heap, SIZE_MAX, 2) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(ebb_heap_malloc(heap, SIZE_MAX) == NULL && errno == ENOMEM);
    errno = 7;
    ebb_heap_delete(heap);
    ebb_heap_delete(NULL);
    CHECK(errno == 7);
}

static void limit(void) {
    ebb_heap *heap = ebb_heap_new(1000000), *other = ebb_heap_new(0);
    void *last = NULL;
    for (void *block; (errno = 0, block = ebb_heap_malloc(heap, 1000)) != NULL; last = block)
        memset(block, 1, 1000);
    CHECK(errno == ENOMEM && ebb_heap_used(heap) <= 1000000);
    CHECK(ebb_heap_used(heap) + malloc_usable_size(last) > 1000000);
    CHECK(ebb_heap_malloc(other, 2000000) != NULL && ebb_malloc_usable_size(last) >= 1000);
    free(last);
    CHECK(ebb_heap_malloc(heap, 1000) != NULL && ebb_heap_malloc(heap, 1000) == NULL);
    ebb_heap_delete(heap);
    ebb_heap_delete(other);

    // In a full heap blocks may still shrink, and a failed call leaves the block unchanged.
    CHECK((heap = ebb_heap_new(200000)) != NULL);
    unsigned char *block = ebb_heap_malloc(heap, 150000);
    CHECK(block != NULL);
    fill(block, 100, 5);
    errno = 0;
    CHECK(ebb_heap_realloc(heap, block, 300000) == NULL && errno == ENOMEM &&
          intact(block, 100, 5));
    CHECK((block = realloc(block, 100)) != NULL && intact(block, 100, 5));
    CHECK(ebb_heap_used(heap) == malloc_usable_size(block));
    CHECK(ebb_heap_aligned_alloc(heap, 1 << 20, 200000) == NULL);
    unsigned char *aligned = ebb_heap_aligned_alloc(heap, 1 << 20, 100000);
    CHECK(aligned != NULL && aligned_to(aligned, 1 << 20) && malloc_usable_size(aligned) >= 100000);
    ebb_heap_delete(heap);
}

struct work {
    ebb_heap *heap;
    void *blocks[BLOCKS];
};

static void *free_half(void *argument) {
    struct work *work = argument;
    for (int i = 0; i < BLOCKS; i += 2) {
        CHECK(intact(work->blocks[i], 50 + i, i));
        free(work->blocks[i]);
    }
    // Meanwhile other threads free their blocks; this deletes only this heap's.
    for (int i = 1; i < BLOCKS; i += 2) CHECK(intact(work->blocks[i], 50 + i, i));
    ebb_heap_delete(work->heap);
    return NULL;
}

// Threads free blocks and delete heaps that other threads made.
static void threads(void) {
    static struct work works[THREADS];
    pthread_t ids[THREADS];
    for (int round = 0; round < 8; round++) {
        for (int t = 0; t < THREADS; t++) {
            CHECK((works[t].heap = ebb_heap_new(0)) != NULL);
            for (int i = 0; i < BLOCKS; i++) {
                CHECK((works[t].blocks[i] = ebb_heap_malloc(works[t].heap, 50 + i)) != NULL);
                fill(works[t].blocks[i], 50 + i, i);
            }
            CHECK(pthread_create(&ids[t], NULL, free_half, &works[t]) == 0);
        }
        for (int t = 0; t < THREADS; t++) CHECK(pthread_join(ids[t], NULL) == 0);
    }
}

int main(void) {
    size_t before = ebb_mallinfo2().hblkhd + ebb_mallinfo2().uordblks;
    contract();
    limit();
    threads();
    // The C library keeps little for each thread; the heaps had megabytes.
    CHECK(ebb_mallinfo2().hblkhd + ebb_mallinfo2().uordblks < before + (1 << 20));
    return 0;
}
