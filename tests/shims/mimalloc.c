// The functions of mimalloc's own interface, also with absurd arguments, threads and fork.
#include "maps.h"
#include "threads.h"
#include <errno.h>
#include <limits.h>
#include <mimalloc.h>
#include <stdlib.h>

// Whether the engine beside the functions serves.
static bool beside;

static int is_zero(const unsigned char *bytes, size_t from, size_t to) {
    for (size_t i = from; i < to; i++)
        if (bytes[i] != 0) return 0;
    return 1;
}

static void blocks(void) {
    size_t sizes[] = {0, 1, 16, 100, 1024, 4000, 65536, 65537, 300000, 2000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t size = sizes[i];
        unsigned char *block = i % 2 ? mi_malloc(size) : mi_mallocn(1, size);
        CHECK(block != NULL && aligned_to(block, 16) && mi_usable_size(block) >= size);
        // What mi_good_size says, the block has; unless it is sampled.
        if (!getenv("EBB_SAMPLE")) CHECK(mi_good_size(size) == mi_usable_size(block));
        CHECK(mi_malloc_size(block) == mi_malloc_usable_size(block));
        fill_sample(block, size, 1);
        CHECK((block = mi_realloc(block, 2 * size + 9)) != NULL);
        CHECK(intact_sample(block, size, size, 1));
        CHECK((block = mi_reallocn(block, 2, size)) != NULL);
        CHECK((block = mi_realloc(block, 0)) != NULL && mi_expand(block, 0) == block);
        mi_free_size(block, 0);
        CHECK((block = mi_zalloc(size)) != NULL && is_zero(block, 0, mi_usable_size(block)));
        memset(block, 0xff, mi_usable_size(block));
        // What grows is zero.
        size_t before = mi_usable_size(block);
        CHECK((block = mi_rezalloc(block, 3 * before + 1)) != NULL);
        CHECK(block[before - 1] == 0xff || before == 0);
        CHECK(is_zero(block, before, mi_usable_size(block)));
        CHECK((block = mi_recalloc(block, 7, before)) != NULL);
        mi_free(block);
        for (size_t align = 1; align <= 1 << 21; align *= 8) {
            CHECK((block = mi_malloc_aligned(size, align)) != NULL && aligned_to(block, align));
            CHECK((block = mi_realloc_aligned(block, size + 999, align)) != NULL);
            CHECK(aligned_to(block, align));
            before = mi_usable_size(block);
            CHECK((block = mi_rezalloc_aligned(block, 2 * before, align)) != NULL);
            CHECK(aligned_to(block, align) && is_zero(block, before, 2 * before));
            mi_free_aligned(block, align);
            CHECK((block = mi_zalloc_aligned_at(size, align, 2 * align)) != NULL);
            CHECK(aligned_to(block, align) && is_zero(block, 0, size));
            mi_free_size_aligned(block, size, align);
        }
    }
    char *text = mi_strdup("seven b");
    CHECK(strcmp(text, "seven b") == 0 && mi_strdup(NULL) == NULL);
    mi_cfree(text);
    CHECK(strcmp(text = mi_strndup("seven", 3), "sev") == 0);
    free(text);
    CHECK((text = mi_realpath("/proc/../proc", NULL)) != NULL && strcmp(text, "/proc") == 0);
    mi_free(text);
    // In place or not at all.
    unsigned char *block = mi_malloc(100);
    CHECK(mi_expand(block, mi_usable_size(block)) == block && mi_expand(block, 5000) == NULL);
    CHECK(mi_expand(NULL, 1) == NULL);
    size_t usable, after;
    CHECK((block = mi_urealloc(block, 5000, &usable, &after)) != NULL);
    CHECK(usable >= 100 && after >= 5000);
    mi_ufree(block, &usable);
    CHECK(usable == after);
    void *out = NULL;
    CHECK(mi_posix_memalign(&out, 64, 10) == 0 && aligned_to(out, 64));
    CHECK(mi_reallocarr(&out, 1000, 3) == 0 && mi_usable_size(out) >= 3000);
    CHECK(mi_reallocarr(&out, SIZE_MAX, 3) == EOVERFLOW && mi_reallocarr(NULL, 1, 1) == EINVAL);
    mi_free(out);
    mi_free(NULL);
    free(mi_malloc(10));
    mi_free(malloc(10));
    mi_free(mi_new(10));
    mi_free(mi_new_aligned(10, 4096));
    mi_free(mi_new_realloc(mi_new_n(2, 10), 1000));
}

// Neither zeros nor another alignment make pages resident.
static void sparse(mi_heap_t *heap) {
    long before = status_mib("VmHWM");
    char *block = mi_heap_zalloc_aligned(heap, 200 << 20, 4096);
    CHECK(block != NULL);
    block[100] = 1;
    size_t alignment = 2 * ((uintptr_t)block & -(uintptr_t)block);
    block = mi_heap_realloc_aligned(heap, block, 190 << 20, alignment);
    CHECK(block != NULL && aligned_to(block, alignment) && block[100] == 1);
    block = mi_heap_rezalloc_aligned(heap, block, 300 << 20, alignment);
    CHECK(block != NULL && block[100] == 1 && block[(300 << 20) - 1] == 0);
    mi_free(block);
    CHECK(status_mib("VmHWM") < before + 60);
}

static void absurd(void) {
    size_t sizes[] = {SIZE_MAX, SIZE_MAX - 4096, SIZE_MAX / 2, (size_t)1 << 60};
    unsigned char *block = mi_malloc(100);
    fill(block, 100, 1);
    for (int i = 0; i < 4; i++) {
        size_t size = OPAQUE(sizes[i]);
        errno = 0;
        CHECK(mi_malloc(size) == NULL && errno == ENOMEM && mi_zalloc(size) == NULL);
        CHECK(mi_realloc(block, size) == NULL && mi_expand(block, size) == NULL);
        CHECK(mi_rezalloc(block, size) == NULL && mi_realloc_aligned(block, size, 64) == NULL);
        CHECK(mi_malloc_aligned(size, 4096) == NULL && mi_new_nothrow(size) == NULL);
        CHECK(mi_good_size(size) == 0 && intact(block, 100, 1));
        CHECK(mi_reallocf(mi_malloc(10), size) == NULL);
    }
    CHECK(mi_calloc(SIZE_MAX, 2) == NULL && mi_mallocn(SIZE_MAX / 2, 3) == NULL);
    CHECK(mi_recalloc(block, SIZE_MAX / 2, 3) == NULL && intact(block, 100, 1));
    size_t aligns[] = {0, 3, 24, SIZE_MAX, (size_t)1 << 62};
    for (int i = 0; i < 5; i++) {
        CHECK(mi_malloc_aligned(100, OPAQUE(aligns[i])) == NULL);
        CHECK(mi_realloc_aligned(block, 100, OPAQUE(aligns[i])) == NULL && intact(block, 100, 1));
        CHECK(mi_memalign(OPAQUE(aligns[i]), 100) == NULL);
    }
    // No block of ebbmalloc is aligned at such an offset.
    CHECK(mi_malloc_aligned_at(100, 64, 8) == NULL && errno == EINVAL);
    CHECK(mi_posix_memalign(NULL, 64, 8) == EINVAL);
    mi_free(block);
}

static void heaps(void) {
    mi_heap_t *heap = mi_heap_new(), *other = mi_heap_new(), *third = mi_heap_new();
    CHECK(heap != NULL && other != NULL && heap != other);
    unsigned char *kept = mi_heap_malloc(third, 1000);
    fill(kept, 1000, 4);
    for (int i = 0; i < 1000; i++) {
        unsigned char *block = mi_heap_calloc(heap, i, 7);
        CHECK(block != NULL && is_zero(block, 0, 7 * i));
        CHECK((block = mi_heap_realloc(heap, block, 20 * i + 1)) != NULL);
        if (i % 3 == 0) mi_free(block);
    }
    // Blocks move between heaps as they grow.
    unsigned char *block = mi_heap_strdup(other, "abc") != NULL ? mi_malloc(100) : NULL;
    fill(block, 100, 2);
    CHECK((block = mi_heap_realloc(other, block, 100000)) != NULL && intact(block, 100, 2));
    CHECK((block = mi_realloc(block, 200000)) != NULL && intact(block, 100, 2));
    CHECK((block = mi_heap_realloc(heap, block, 400000)) != NULL && intact(block, 100, 2));
    CHECK((block = mi_heap_realloc_aligned(NULL, block, 900000, 8192)) != NULL);
    CHECK(intact(block, 100, 2) && aligned_to(block, 8192));
    size_t before = mi_usable_size(block);
    CHECK((block = mi_heap_rezalloc(mi_heap_main(), block, 2000000)) != NULL);
    CHECK(intact(block, 100, 2) && is_zero(block, before, 2000000));
    CHECK(aligned_to(mi_heap_zalloc_aligned(heap, 10, 65536), 65536));
    CHECK(mi_heap_malloc_aligned(heap, 10, 24) == NULL);
    CHECK(mi_heap_malloc(heap, OPAQUE(SIZE_MAX)) == NULL);
    CHECK(mi_heap_mallocn(heap, SIZE_MAX, 2) == NULL);
    // What a heap hands out cleared is clear up to the usable size, also where it was used before.
    for (size_t size = 100; size <= 70000; size += 69900) {
        unsigned char *used = mi_heap_malloc(heap, size);
        size_t usable = mi_usable_size(used);
        memset(used, 0xff, usable);
        mi_free(used);
        unsigned char *cleared = mi_heap_zalloc(heap, size);
        CHECK((cleared = mi_heap_rezalloc(heap, cleared, usable)) != NULL);
        CHECK(is_zero(cleared, 0, usable));
        mi_free(cleared);
    }
    mi_heap_collect(heap, true);
    if (beside) {
        CHECK(mi_heap_contains_block(third, kept) && !mi_heap_contains_block(heap, kept));
        CHECK(!mi_heap_contains_block(NULL, kept) && mi_check_owned(kept));
        CHECK(mi_heap_contains_block(mi_heap_main(), block));
        CHECK(!mi_heap_contains_block(heap, block));
        CHECK(!mi_check_owned(&beside) && !mi_heap_contains_block(NULL, &beside));
    }
    // Deleting a heap keeps its blocks, destroying one does not.
    mi_heap_delete(third);
    CHECK(intact(kept, 1000, 4));
    CHECK((kept = mi_realloc(kept, 5000)) != NULL && intact(kept, 1000, 4));
    mi_free(kept);
    mi_free(block);
    mi_heap_destroy(heap);
    mi_heap_destroy(other);
    mi_heap_delete(mi_heap_new());
    mi_heap_destroy(mi_heap_get_backing());
    mi_heap_delete(NULL);
}

static int errors, texts;

static void on_error(int error, void *argument) {
    CHECK(error == ENOMEM && argument == &errors);
    errors++;
}

static void on_text(const char *text, void *argument) {
    CHECK(strlen(text) > 500 && argument == &texts);
    texts++;
}

static void reports(void) {
    CHECK(mi_version() == MI_MALLOC_VERSION);
    mi_stats_print_out(on_text, &texts);
    mi_register_output(on_text, &texts);
    mi_stats_print(NULL);
    mi_register_output(NULL, NULL);
    CHECK(texts == 2);
    mi_register_error(on_error, &errors);
    CHECK(mi_malloc(OPAQUE(SIZE_MAX / 2)) == NULL && errors == 1);
    mi_register_error(NULL, NULL);
    CHECK(mi_malloc(OPAQUE(SIZE_MAX / 2)) == NULL && errors == 1);
    char *json = mi_stats_get_json(0, NULL), small[10];
    CHECK(json != NULL && json[0] == '{' && mi_stats_get_json(10, small) == NULL);
    mi_free(json);
    size_t elapsed, resident, peak, committed;
    void *block = mi_malloc(30 << 20);
    memset(block, 1, 30 << 20);
    mi_process_info(&elapsed, NULL, NULL, &resident, &peak, &committed, NULL, NULL);
    CHECK(resident > 30 << 20 && peak > 30 << 20 && committed > 30 << 20 && elapsed < 1000000);
    mi_free(block);
    mi_collect(false);
    mi_collect(true);
    mi_process_info(NULL, NULL, NULL, &resident, NULL, NULL, NULL, NULL);
    if (!getenv("EBB_HARDEN")) CHECK(resident + (20 << 20) < peak);
}

static void options(void) {
    long initial = mi_option_get(mi_option_purge_delay);
    mi_option_set(mi_option_purge_delay, 1000);
    CHECK(mi_option_get(mi_option_purge_delay) == 1000);
    mi_option_set_default(mi_option_purge_delay, 1);
    CHECK(mi_option_get_clamp(mi_option_purge_delay, 0, 500) == 500);
    // It cannot be forbidden, so it stays.
    mi_option_set(mi_option_purge_delay, -1);
    CHECK(mi_option_get_size(mi_option_purge_delay) == 1000);
    mi_option_set(mi_option_purge_delay, initial);
    // What has no effect reads as not set.
    mi_option_enable(mi_option_verbose);
    CHECK(!mi_option_is_enabled(mi_option_verbose));
    mi_option_set((mi_option_t)-5, 1);
    CHECK(mi_option_get((mi_option_t)12345) == 0);
}

static void *work(void *argument) {
    uint32_t seed = 1 + (uint32_t)(uintptr_t)argument;
    mi_heap_t *heap = mi_heap_new();
    void *held[64] = {0};
    mi_thread_init();
    for (int i = 0; i < 6000; i++) {
        int place = random32(&seed) % 64;
        size_t size = random_size(&seed);
        mi_heap_t *into = i % 3 ? heap : NULL;
        if (held[place] && i % 2) {
            held[place] = mi_heap_realloc(into, held[place], size);
        } else {
            mi_free(held[place]);
            held[place] = mi_heap_malloc(into, size);
        }
        CHECK(held[place] != NULL);
        memset(held[place], i, size);
    }
    for (int place = 0; place < 64; place++) mi_free(held[place]);
    mi_heap_destroy(heap);
    mi_thread_done();
    return NULL;
}

static void in_child(void) {
    mi_heap_t *heap = mi_heap_new();
    mi_free(mi_heap_malloc(heap, 1000));
    mi_heap_destroy(heap);
    mi_collect(true);
}

// With "elsewhere", libebbmalloc.so was loaded before, and its engine serves.
int main(int count, char **arguments) {
    CHECK(count == 1 || strcmp(arguments[1], "elsewhere") == 0);
    beside = count == 1;
    blocks();
    absurd();
    heaps();
    if (beside) {
        mi_heap_t *heap = mi_heap_new();
        sparse(mi_heap_main());
        sparse(heap);
        mi_heap_destroy(heap);
    }
    reports();
    options();
    threads_and_fork(work, in_child);
    puts("served by ebbmalloc 0.1.0");
    return 0;
}
