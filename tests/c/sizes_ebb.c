// Sizes that no process can have fail in each function of ebbmalloc.h.
// They give NULL and ENOMEM, or false with errno unchanged. So do sizes beyond a heap's limit.
// Blocks of each kind stay unchanged, also those of heaps.
// expect: exit 0
// ways: dynamic static
// harden: too
#include "sizes.h"
#include "ebbmalloc.h"
#include <stdbool.h>

struct of_heap {
    ebb_heap *heap;
    struct kept kept;
};

/* Fails both in place and by a move. */
static void not_in_place(size_t size, void *with) {
    struct kept *kept = with;
    errno = 7;
    CHECK(!ebb_resize(kept->block, kept->alignment, size));
    CHECK(ebb_remap(kept->block, kept->alignment, size) == NULL);
    CHECK(errno == 7);
}

static void none_in_heap(size_t size, void *with) {
    ebb_heap *heap = with;
    REFUSED(ebb_heap_malloc(heap, size));
    REFUSED(ebb_heap_calloc(heap, size, 1));
    REFUSED(ebb_heap_calloc(heap, 4096, size / 4096 + 1));
    REFUSED(ebb_heap_calloc(heap, size, 3));
    REFUSED(ebb_heap_realloc(heap, NULL, size));
    for (size_t alignment = 1; alignment <= (size_t)1 << 24; alignment *= 64)
        REFUSED(ebb_heap_aligned_alloc(heap, alignment, size));
}

static void not_in_heap(size_t size, void *with) {
    struct of_heap *of_heap = with;
    struct kept *kept = &of_heap->kept;
    REFUSED(ebb_heap_realloc(of_heap->heap, kept->block, size));
    REFUSED(ebb_realloc(kept->block, size));
    REFUSED(ebb_reallocarray(kept->block, 65536, size / 65536 + 1));
    not_in_place(size, kept);
}

static void heaps(void) {
    const size_t limits[] = {0, SIZE_MAX, ((size_t)1 << 48) - 2 * UNIT, (size_t)3 << 20};
    const size_t sizes[] = {0, 100, 40000, UNIT, UNIT + 1, 1 << 20};
    for (unsigned nth = 0; nth < sizeof limits / sizeof *limits; nth++) {
        ebb_heap *heap = ebb_heap_new(limits[nth]);
        struct of_heap blocks[6];
        CHECK(heap != NULL);
        for (unsigned i = 0; i < 6; i++) {
            void *block = ebb_heap_malloc(heap, sizes[i]);
            blocks[i].heap = heap;
            blocks[i].kept = keep(block, sizes[i], 16, ebb_malloc_usable_size);
        }
        size_t used = ebb_heap_used(heap);
        each_absurd(blocks[5].kept.block, none_in_heap, heap);
        for (unsigned bit = ADDRESS_BITS; bit < 64; bit++)
            REFUSED(ebb_heap_aligned_alloc(heap, (size_t)1 << bit, 100));
        for (unsigned i = 0; i < 6; i++) {
            each_absurd(blocks[i].kept.block, not_in_heap, &blocks[i]);
            if (nth == 3)
                for (size_t size = limits[nth] + 1; size <= (size_t)1 << 40; size *= 2)
                    not_in_heap(size, &blocks[i]);
            CHECK(intact(blocks[i].kept.block, sizes[i], 3));
            CHECK(ebb_malloc_usable_size(blocks[i].kept.block) == blocks[i].kept.usable);
        }
        CHECK(ebb_heap_used(heap) == used);
        for (unsigned i = 0; i < 6; i++) ebb_free(blocks[i].kept.block);
        ebb_heap_delete(heap);
    }
}

int main(void) {
    struct face names = {ebb_malloc,   ebb_calloc,         ebb_realloc, ebb_reallocarray,
                         ebb_aligned_alloc, ebb_memalign,  ebb_posix_memalign, ebb_valloc,
                         ebb_pvalloc,  ebb_malloc_usable_size, ebb_free};
    test_face(&names);
    for (unsigned sort = 0; sort < SORTS; sort++) {
        struct kept kept = block_of(sort);
        void *behind = ebb_malloc(300000);
        each_absurd(kept.block, not_in_place, &kept);
        still_there(&kept);
        ebb_free(kept.block);
        ebb_free(behind);
    }
    heaps();
    /* As with snprintf, it writes no more than the text. */
    size_t length = ebb_stats(EBB_STATS_JSON, NULL, 0) + 1024;
    char *text = ebb_malloc(length + 1);
    text[length] = 'x';
    CHECK(ebb_stats(EBB_STATS_JSON, text, SIZE_MAX) < length);
    CHECK(strlen(text) < length && text[length] == 'x');
    char five[6] = "12345";
    CHECK(ebb_stats(EBB_STATS_JSON, five, 5) > 5);
    CHECK(strlen(five) == 4 && strncmp(five, text, 4) == 0);
    CHECK(ebb_stats(EBB_STATS_JSON, five, 1) > 5 && five[0] == 0);
    CHECK(ebb_stats(EBB_STATS_JSON, NULL, 0) > 5);
    ebb_free(text);
    return 0;
}
