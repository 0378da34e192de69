// The functions of jemalloc's own interface, also with absurd arguments, threads and fork.
#include "maps.h"
#include "threads.h"
#include <errno.h>
#include <jemalloc/jemalloc.h>
#include <stdlib.h>

static int is_zero(const unsigned char *bytes, size_t from, size_t to) {
    for (size_t i = from; i < to; i++)
        if (bytes[i] != 0) return 0;
    return 1;
}

static void blocks(void) {
    size_t sizes[] = {1, 16, 100, 4000, 65536, 65537, 300000, 2000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t size = sizes[i];
        for (int log = 0; log <= 21; log++) {
            int flags = MALLOCX_LG_ALIGN(log) | (i % 2 ? MALLOCX_ZERO : 0) |
                        (i % 3 ? 0 : MALLOCX_TCACHE_NONE) | MALLOCX_ARENA(i);
            unsigned char *block = mallocx(size, flags);
            CHECK(block != NULL && aligned_to(block, (size_t)1 << log));
            CHECK(sallocx(block, flags) >= size && malloc_usable_size(block) == sallocx(block, 0));
            // What nallocx says, the block has; unless it is sampled.
            if (!getenv("EBB_SAMPLE")) CHECK(nallocx(size, flags) == sallocx(block, flags));
            if (i % 2) CHECK(is_zero(block, 0, sallocx(block, 0)));
            fill_sample(block, size, log);
            block = rallocx(block, 3 * size + 7, MALLOCX_LG_ALIGN(log));
            CHECK(block != NULL && aligned_to(block, (size_t)1 << log));
            CHECK(intact_sample(block, size - 1, size, log) || size == 1);
            block = rallocx(block, size, MALLOCX_LG_ALIGN(log));
            CHECK(block != NULL && aligned_to(block, (size_t)1 << log));
            CHECK(intact_sample(block, size - 1, size, log) || size == 1);
            // The size may be the requested one, or any up to that of sallocx.
            if (log % 2)
                sdallocx(block, size, flags);
            else
                je_sdallocx(block, sallocx(block, flags), flags);
        }
    }
    // Growth with MALLOCX_ZERO clears what was behind the old size.
    for (size_t size = 100; size < 3000000; size *= 3) {
        unsigned char *block = mallocx(size, 0);
        CHECK(block != NULL);
        memset(block, 0xff, sallocx(block, 0));
        size_t before = sallocx(block, 0);
        block = rallocx(block, 4 * size, MALLOCX_ZERO);
        CHECK(block != NULL && block[before - 1] == 0xff);
        CHECK(is_zero(block, before, sallocx(block, 0)));
        dallocx(block, 0);
    }
    void *empty = mallocx(0, 0);
    CHECK(empty != NULL);
    dallocx(empty, 0);
    // All functions of malloc.h, by their other names.
    void *block = je_malloc(10);
    CHECK((block = je_realloc(block, 100)) != NULL && je_malloc_usable_size(block) >= 100);
    free(block);
    CHECK((block = je_calloc(10, 10)) != NULL && is_zero(block, 0, 100));
    je_free(block);
    CHECK(je_posix_memalign(&block, 4096, 10) == 0 && aligned_to(block, 4096));
    free(block);
    CHECK((block = je_aligned_alloc(64, 10)) != NULL && aligned_to(block, 64));
    dallocx(block, 0);
    dallocx(malloc(10), MALLOCX_TCACHE_NONE);
    free(mallocx(10, MALLOCX_TCACHE_NONE));
    je_free(NULL);
}

// Neither zeros nor another alignment make pages resident.
static void sparse(void) {
    long before = status_mib("VmHWM");
    char *block = mallocx(200 << 20, MALLOCX_ALIGN(4096) | MALLOCX_ZERO);
    CHECK(block != NULL);
    block[100] = 1;
    size_t alignment = 2 * ((uintptr_t)block & -(uintptr_t)block);
    block = rallocx(block, 190 << 20, MALLOCX_ALIGN(alignment));
    CHECK(block != NULL && aligned_to(block, alignment) && block[100] == 1);
    block = rallocx(block, 300 << 20, MALLOCX_ALIGN(alignment) | MALLOCX_ZERO);
    CHECK(block != NULL && block[100] == 1 && block[(300 << 20) - 1] == 0);
    dallocx(block, 0);
    CHECK(status_mib("VmHWM") < before + 60);
}

static void in_place(void) {
    unsigned char *block = mallocx(100, 0);
    size_t usable = sallocx(block, 0);
    CHECK(xallocx(block, 100, 0, 0) == usable);
    CHECK(xallocx(block, 5000, 0, 0) == usable && xallocx(block, 1, 0, 0) >= 1);
    CHECK(xallocx(block, SIZE_MAX, 0, 0) < 5000 && xallocx(block, 100, SIZE_MAX, 0) < 5000);
    CHECK(xallocx(block, SIZE_MAX / 2, SIZE_MAX, MALLOCX_LG_ALIGN(63)) < 5000);
    dallocx(block, 0);
    // Into free memory behind it, or not at all. What it says is so.
    block = mallocx(200000, 0);
    fill_sample(block, 200000, 3);
    usable = sallocx(block, 0);
    size_t now = xallocx(block, 250000, 1000000, MALLOCX_ZERO);
    CHECK(now == sallocx(block, 0) && now >= usable && is_zero(block, usable, now));
    CHECK(intact_sample(block, 199999, 200000, 3));
    CHECK(xallocx(block, 100000, 0, 0) == sallocx(block, 0) && sallocx(block, 0) >= 100000);
    dallocx(block, 0);
}

static void absurd(void) {
    size_t sizes[] = {SIZE_MAX, SIZE_MAX - 4096, SIZE_MAX / 2, (size_t)1 << 60};
    for (int i = 0; i < 4; i++)
        for (int log = 0; log < 64; log += 7) {
            int flags = MALLOCX_LG_ALIGN(log) | (log % 2 ? MALLOCX_ZERO : 0);
            CHECK(mallocx(OPAQUE(sizes[i]), flags) == NULL);
            CHECK(mallocx(OPAQUE(sizes[i]), flags | MALLOCX_TCACHE_NONE) == NULL);
            CHECK(nallocx(sizes[i], flags) == 0);
            unsigned char *block = mallocx(100, 0);
            fill(block, 100, 1);
            CHECK(rallocx(block, OPAQUE(sizes[i]), flags) == NULL && intact(block, 100, 1));
            dallocx(block, 0);
        }
    CHECK(mallocx(100, MALLOCX_LG_ALIGN(60)) == NULL && nallocx(100, MALLOCX_LG_ALIGN(60)) == 0);
    void *block = rallocx(NULL, 0, 0);
    CHECK(block != NULL);
    free(block);
    CHECK(sallocx(NULL, 0) == 0 && xallocx(NULL, 1, 1, 0) == 0);
    CHECK(je_get_defrag_hint(NULL) == 0 && je_get_defrag_hint((void *)16) == 0);
}

#define READ(name, type) \
    ({ \
        type value_; \
        size_t bytes_ = sizeof value_; \
        CHECK(mallctl(name, &value_, &bytes_, NULL, 0) == 0 && bytes_ == sizeof value_); \
        value_; \
    })

static void refresh(void) {
    uint64_t epoch = 1;
    CHECK(mallctl("epoch", NULL, NULL, &epoch, sizeof epoch) == 0);
}

static void figures(void) {
    refresh();
    size_t allocated = READ("stats.allocated", size_t), active = READ("stats.active", size_t);
    CHECK(READ("stats.allocated", size_t) == allocated);
    void *block = mallocx(50 << 20, 0);
    memset(block, 1, 50 << 20);
    CHECK(READ("stats.allocated", size_t) == allocated);
    uint64_t before = READ("epoch", uint64_t);
    refresh();
    CHECK(READ("epoch", uint64_t) == before + 1);
    size_t grown = READ("stats.allocated", size_t);
    CHECK(grown >= allocated + (50 << 20) && grown < allocated + (51 << 20));
    CHECK(READ("stats.active", size_t) >= active + (50 << 20));
    CHECK(READ("stats.active", size_t) >= grown);
    CHECK(READ("stats.resident", size_t) >= READ("stats.active", size_t));
    CHECK(READ("stats.mapped", size_t) >= READ("stats.active", size_t));
    CHECK(READ("stats.metadata", size_t) > 0);
    CHECK(READ("stats.arenas.0.small.allocated", size_t) +
              READ("stats.arenas.4096.large.allocated", size_t) == grown);
    dallocx(block, 0);
    CHECK(mallctl("arena.0.purge", NULL, NULL, NULL, 0) == 0);
    refresh();
    // Harden mode holds freed blocks back.
    if (!getenv("EBB_HARDEN")) {
        CHECK(READ("stats.allocated", size_t) < allocated + (1 << 20));
        CHECK(READ("stats.resident", size_t) < 40 << 20);
    }
    CHECK(READ("stats.arenas.0.pdirty", size_t) < 1000);
    CHECK(READ("stats.retained", size_t) < 1 << 30);
}

static void nodes(void) {
    CHECK(READ("version", const char *)[0] == '5' && READ("arenas.narenas", unsigned) == 1);
    CHECK(READ("arenas.quantum", size_t) == 16 && !READ("opt.abort", bool));
    CHECK(strcmp(READ("opt.dss", const char *), "disabled") == 0);
    // Size classes are those of nallocx.
    unsigned bins = READ("arenas.nbins", unsigned);
    CHECK(bins > 30 && bins < 1000);
    size_t mib[8], length = 8;
    CHECK(mallctlnametomib("arenas.bin.0.size", mib, &length) == 0 && length == 4);
    for (size_t i = 0, last = 0; i < bins; i++) {
        size_t size, bytes = sizeof size;
        mib[2] = i;
        CHECK(mallctlbymib(mib, length, &size, &bytes, NULL, 0) == 0);
        CHECK(size > last);
        last = size;
        void *block = mallocx(size, 0);
        CHECK(sallocx(block, 0) == size);
        dallocx(block, 0);
    }
    mib[2] = bins;
    CHECK(mallctlbymib(mib, length, NULL, NULL, NULL, 0) == ENOENT);
    CHECK(mallctlbymib(mib, 3, NULL, NULL, NULL, 0) == ENOENT);
    mib[0] = SIZE_MAX;
    CHECK(mallctlbymib(mib, length, NULL, NULL, NULL, 0) == ENOENT);
    length = 3;
    CHECK(mallctlnametomib("arenas.bin.0.size", mib, &length) == EINVAL && length == 3);

    const char *unknown[] = {"", ".", "stats", "stats.", "stats.allocated.", "prof.active",
                             "thread.allocatedp", "arena.2.purge", "arena.x.purge",
                             "arena.99999999999999999999999.purge", "arenas.bin.-1.size"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        length = 8;
        CHECK(mallctl(unknown[i], NULL, NULL, NULL, 0) == ENOENT);
        if (i != 7) CHECK(mallctlnametomib(unknown[i], mib, &length) == ENOENT && length == 8);
    }
    // A short buffer gets what fits; a long one is refused too.
    unsigned char two[3] = {9, 9, 9};
    size_t bytes = 2, large[2] = {0, 0}, value = 1;
    refresh();
    size_t allocated = READ("stats.allocated", size_t);
    CHECK(mallctl("stats.allocated", two, &bytes, NULL, 0) == EINVAL && two[2] == 9);
    CHECK(memcmp(two, &allocated, 2) == 0);
    bytes = sizeof large;
    CHECK(mallctl("stats.allocated", large, &bytes, NULL, 0) == EINVAL && bytes == sizeof value);
    bytes = 0;
    CHECK(mallctl("stats.allocated", two, &bytes, NULL, 0) == EINVAL && bytes == 0);
    CHECK(mallctl("stats.allocated", NULL, NULL, &value, sizeof value) == EPERM);
    CHECK(mallctl("epoch", NULL, NULL, two, 2) == EINVAL);
    CHECK(mallctl("arena.0.purge", NULL, NULL, &value, sizeof value) == EPERM);
    CHECK(mallctl("thread.tcache.flush", NULL, NULL, NULL, 0) == 0);
    unsigned arena = 7;
    CHECK(mallctl("thread.arena", NULL, NULL, &arena, sizeof arena) == EFAULT);
    // redis gives the number of arenas for all of them.
    CHECK(mallctl("arena.1.purge", NULL, NULL, NULL, 0) == 0);
    bool was = READ("background_thread", bool), off = false, old;
    bytes = sizeof old;
    CHECK(mallctl("background_thread", &old, &bytes, &off, sizeof off) == 0 && old == was);
    CHECK(!READ("background_thread", bool));
    CHECK(mallctl("background_thread", NULL, NULL, &was, sizeof was) == 0);
    CHECK(READ("background_thread", bool) == was);
}

static int of_arena(const char *node, unsigned arena) {
    char name[64];
    snprintf(name, sizeof name, "arena.%u.%s", arena, node);
    return mallctl(name, NULL, NULL, NULL, 0);
}

// Arenas hold the blocks that are asked of them, until these are freed, or all at once.
static void arenas(int elsewhere) {
    CHECK(READ("arenas.narenas", unsigned) == 1);
    unsigned first = READ("arenas.create", unsigned), second = READ("arenas.create", unsigned);
    CHECK(first == 1 && second == 2 && READ("arenas.narenas", unsigned) == 3);
    CHECK(READ("arena.2.initialized", bool));
    size_t sizes[] = {1, 16, 100, 4000, 65536, 65537, 300000, 2000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int log = 0; log <= 21; log += 3) {
            size_t size = sizes[i];
            int flags = MALLOCX_ARENA(first) | MALLOCX_LG_ALIGN(log) |
                        (i % 3 ? 0 : MALLOCX_TCACHE_NONE);
            unsigned char *block = mallocx(size, flags | MALLOCX_ZERO);
            CHECK(block != NULL && aligned_to(block, (size_t)1 << log));
            CHECK(sallocx(block, flags) >= size && is_zero(block, 0, size));
            fill_sample(block, size, log);
            block = rallocx(block, 3 * size + 7, flags);
            CHECK(block != NULL && aligned_to(block, (size_t)1 << log));
            CHECK(intact_sample(block, size - 1, size, log) || size == 1);
            // From one arena to another, and to none.
            block = rallocx(block, 9 * size + 9, MALLOCX_ARENA(second) | MALLOCX_LG_ALIGN(log));
            CHECK(block != NULL && aligned_to(block, (size_t)1 << log));
            CHECK(intact_sample(block, size - 1, size, log) || size == 1);
            block = realloc(block, size);
            CHECK(intact_sample(block, size - 1, size, log) || size == 1);
            switch (i % 3) {
            case 0: dallocx(block, flags); break;
            case 1: sdallocx(block, size, flags); break;
            default: free(block);
            }
        }
    CHECK(mallocx(OPAQUE(SIZE_MAX / 2), MALLOCX_ARENA(first)) == NULL);

    refresh();
    size_t before = READ("stats.allocated", size_t);
    for (int i = 0; i < 1000; i++) {
        CHECK(mallocx(1000, MALLOCX_ARENA(first)) != NULL);
        CHECK(mallocx(100000, MALLOCX_ARENA(second)) != NULL);
    }
    void *kept = mallocx(1000, 0);
    refresh();
    CHECK(READ("stats.allocated", size_t) >= before + 101000000);
    CHECK(of_arena("reset", second) == 0);
    refresh();
    CHECK(READ("stats.allocated", size_t) < before + 2000000);
    CHECK(of_arena("destroy", first) == 0 && of_arena("destroy", first) == EFAULT);
    CHECK(of_arena("initialized", first) == ENOENT && of_arena("destroy", 0) == EFAULT);
    CHECK(of_arena("reset", 5000) == EFAULT);
    // The next one has the number that is free; the other goes on.
    CHECK(READ("arenas.create", unsigned) == first);
    dallocx(mallocx(100, MALLOCX_ARENA(second)), 0);
    CHECK(of_arena("purge", second) == 0 && of_arena("decay", second) == 0);
    CHECK(of_arena("destroy", first) == 0 && of_arena("destroy", second) == 0);
    CHECK(READ("arenas.narenas", unsigned) == 1);
    memset(kept, 1, 1000);
    free(kept);

    // A block that moves out of an arena outlives it.
    first = READ("arenas.create", unsigned);
    unsigned char *out = mallocx(100, MALLOCX_ARENA(first));
    fill(out, 100, 3);
    out = rallocx(out, 300000, MALLOCX_TCACHE_NONE);
    if (!elsewhere) CHECK(of_arena("destroy", first) == 0);
    CHECK(intact(out, 100, 3));
    dallocx(out, 0);

    // What programs do with the memory of an arena is refused, and leaves no arena behind.
    extent_hooks_t hooks = {0}, *given = &hooks;
    unsigned arena;
    size_t bytes = sizeof arena;
    CHECK(mallctl("arenas.create", &arena, &bytes, &given, sizeof given) == EPERM);
    // No arena is made whose number the program cannot get.
    unsigned arenas_before = READ("arenas.narenas", unsigned);
    size_t wide = 0, wide_bytes = sizeof wide;
    CHECK(mallctl("arenas.create", &wide, &wide_bytes, NULL, 0) == EINVAL && wide_bytes == 0);
    CHECK(mallctl("arenas.create", NULL, NULL, NULL, 0) == EINVAL);
    CHECK(READ("arenas.narenas", unsigned) == arenas_before);
    CHECK(mallctl("arena.0.extent_hooks", NULL, NULL, &given, sizeof given) == ENOENT);
    CHECK(READ("arenas.narenas", unsigned) == (elsewhere ? 2 : 1));
    // Thread caches have numbers, and change nothing.
    unsigned cache = READ("tcache.create", unsigned);
    dallocx(mallocx(100, MALLOCX_TCACHE(cache)), MALLOCX_TCACHE(cache));
    CHECK(mallctl("tcache.flush", NULL, NULL, &cache, sizeof cache) == 0);
    CHECK(mallctl("tcache.destroy", NULL, NULL, &cache, sizeof cache) == 0);
    CHECK(mallctl("tcache.destroy", NULL, NULL, NULL, 0) == EINVAL);
}

static void collect(void *opaque, const char *text) {
    *(size_t *)opaque += strlen(text);
    free(malloc(100));
}

static void print(void) {
    size_t length = 0;
    malloc_stats_print(collect, &length, NULL);
    CHECK(length > 500);
    length = 0;
    je_malloc_stats_print(collect, &length, "J");
    CHECK(length > 500);
}

// Frees most blocks, and moves the others as the hint says, until none is to move.
static void defragment(void) {
    enum { COUNT = 40000, KEPT = 8 };
    static void *all[COUNT];
    for (int i = 0; i < COUNT; i++) CHECK((all[i] = malloc(200)) != NULL);
    for (int i = 0; i < COUNT; i++)
        if (i % KEPT != 0) free(all[i]);
    CHECK(mallctl("thread.tcache.flush", NULL, NULL, NULL, 0) == 0);
    refresh();
    size_t before = READ("stats.active", size_t) - READ("stats.allocated", size_t);
    int moves = 0, last;
    do {
        last = moves;
        for (int i = 0; i < COUNT; i += KEPT) {
            if (!je_get_defrag_hint(all[i])) continue;
            void *block = mallocx(200, MALLOCX_TCACHE_NONE);
            memcpy(block, all[i], 200);
            dallocx(all[i], MALLOCX_TCACHE_NONE);
            all[i] = block;
            CHECK(++moves <= COUNT / KEPT);
        }
    } while (moves > last);
    refresh();
    size_t after = READ("stats.active", size_t) - READ("stats.allocated", size_t);
    // In check and harden mode, nothing moves, nor does a sampled block.
    if (getenv("EBB_CHECK") || getenv("EBB_HARDEN"))
        CHECK(moves == 0);
    else
        CHECK(moves > COUNT / KEPT / 2 && before > 5000000 && after < 1000000);
    for (int i = 0; i < COUNT; i += KEPT) free(all[i]);
}

static void *work(void *argument) {
    uint32_t seed = 1 + (uint32_t)(uintptr_t)argument;
    void *held[64] = {0};
    for (int i = 0; i < 6000; i++) {
        int place = random32(&seed) % 64, flags = i % 3 ? 0 : MALLOCX_TCACHE_NONE;
        size_t size = random_size(&seed);
        if (held[place] && i % 5 == 0 && je_get_defrag_hint(held[place])) size = 100;
        if (held[place] && i % 2) {
            held[place] = rallocx(held[place], size, flags);
        } else {
            if (held[place]) dallocx(held[place], flags);
            held[place] = mallocx(size, flags);
        }
        CHECK(held[place] != NULL);
        memset(held[place], i, size);
        if (i % 1000 == 0) refresh();
    }
    for (int place = 0; place < 64; place++)
        if (held[place]) free(held[place]);
    return NULL;
}

static void in_child(void) {
    refresh();
    dallocx(mallocx(1000, MALLOCX_TCACHE_NONE), MALLOCX_TCACHE_NONE);
    CHECK(mallctl("arena.0.purge", NULL, NULL, NULL, 0) == 0);
}

// With "elsewhere", libebbmalloc.so was loaded before, and its engine serves.
int main(int count, char **arguments) {
    blocks();
    in_place();
    absurd();
    figures();
    print();
    arenas(count > 1);
    if (count > 1) {
        CHECK(strcmp(arguments[1], "elsewhere") == 0);
        CHECK(mallctl("background_thread", NULL, NULL, NULL, 0) == ENOENT);
        void *block = malloc(10);
        CHECK(!je_get_defrag_hint(block));
        free(block);
    } else {
        nodes();
        sparse();
        defragment();
    }
    threads_and_fork(work, in_child);
    puts("served by ebbmalloc 0.1.0");
    return 0;
}
