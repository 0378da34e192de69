/* Tries sizes that no process can have, around each value where arithmetic could wrap or truncate.
   It tries them for new blocks and to resize blocks of each kind. Each call must fail and leave the
   block unchanged. */
#pragma once

#include "check.h"
#include <errno.h>
#include <stdlib.h>

/* UNIT is the page heap's granule, in bytes. Blocks of these programs lie in the first UNITS
   units. */
enum { UNIT = 64 << 10, UNITS = 90 };

/* A process's addresses have this many bits: where they have 48, a block may begin at 2^47. */
#ifdef __x86_64__
enum { ADDRESS_BITS = 47 };
#else
enum { ADDRESS_BITS = 48 };
#endif

/* The functions of malloc(3), under any names. */
struct face {
    void *(*malloc)(size_t);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void *(*reallocarray)(void *, size_t, size_t);
    void *(*aligned_alloc)(size_t, size_t);
    void *(*memalign)(size_t, size_t);
    int (*posix_memalign)(void **, size_t, size_t);
    void *(*valloc)(size_t);
    void *(*pvalloc)(size_t);
    size_t (*usable_size)(void *);
    void (*free)(void *);
};

/* A filled block that must stay unchanged. */
struct kept {
    void *block;
    size_t size, usable, alignment;
};

/* Calls `work` with sizes beyond all address spaces, and with sizes at which a block at this
   address would end near the end of an address space or of the count of units. */
__attribute__((unused)) static void each_absurd(const void *block, void (*work)(size_t, void *),
                                                void *with) {
    static const size_t steps[] = {0, 1, 24, 4096, UNIT - 1, UNIT, UNIT + 1};
    for (unsigned step = 0; step < sizeof steps / sizeof *steps; step++) {
        /* 2^47 to 2^64, which wraps to 0. */
        for (unsigned bit = 47; bit <= 64; bit++) {
            size_t power = bit < 64 ? (size_t)1 << bit : 0;
            if (bit > 47 && power != steps[step]) work(power - steps[step], with);
            if (bit < 64) work(power + steps[step], with);
        }
        work(0 - (size_t)block - steps[step], with);
        work(((size_t)1 << 63) - (size_t)block + steps[step], with);
        work(((size_t)1 << 63) - (size_t)block - steps[step], with);
    }
    for (size_t unit = 0; unit < UNITS; unit++) {
        work(((size_t)1 << 48) - unit * UNIT, with);
        if (unit % 8 == 0) work(((size_t)1 << 48) - unit * UNIT - 1, with);
    }
}

__attribute__((unused)) static struct kept keep(void *block, size_t size, size_t alignment,
                                                size_t (*usable_size)(void *)) {
    struct kept kept = {block, size, 0, alignment};
    CHECK(block != NULL && aligned_to(block, alignment));
    kept.usable = usable_size(block);
    fill(block, size, 3);
    return kept;
}

static const struct face *face;

/* Checks for NULL and ENOMEM. */
#define REFUSED(call) CHECK((errno = 0, (call) == NULL) && errno == ENOMEM)

__attribute__((unused)) static void no_new_block(size_t size, void *with) {
    void *out = with;
    REFUSED(face->malloc(size));
    REFUSED(face->calloc(size, 1));
    REFUSED(face->calloc(1, size));
    REFUSED(face->calloc(4096, size / 4096 + 1));
    REFUSED(face->calloc(size, 3));
    REFUSED(face->realloc(NULL, size));
    REFUSED(face->reallocarray(NULL, size, 1));
    REFUSED(face->reallocarray(NULL, size, 65536));
    REFUSED(face->valloc(size));
    REFUSED(face->pvalloc(size));
    for (size_t alignment = 8; alignment <= (size_t)1 << 24; alignment *= 16) {
        REFUSED(face->aligned_alloc(alignment, size));
        REFUSED(face->memalign(alignment, size));
        CHECK(face->posix_memalign(&out, alignment, size) == ENOMEM && out == with);
    }
}

__attribute__((unused)) static void no_resized_block(size_t size, void *with) {
    struct kept *kept = (struct kept *)with;
    REFUSED(face->realloc(kept->block, size));
    REFUSED(face->reallocarray(kept->block, size, 1));
    REFUSED(face->reallocarray(kept->block, 65536, size / 65536 + 1));
    REFUSED(face->reallocarray(kept->block, size, 5));
}

/* Alignments that no block can have: impossible even with small sizes. */
__attribute__((unused)) static void no_alignment(void) {
    for (unsigned bit = ADDRESS_BITS; bit < 64; bit++) {
        const size_t alignment = (size_t)1 << bit;
        const size_t sizes[] = {0, 1, 100, 70000, 1 << 20, SIZE_MAX / 2, SIZE_MAX};
        for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            void *out = NULL;
            REFUSED(face->aligned_alloc(alignment, sizes[i]));
            REFUSED(face->memalign(alignment, sizes[i]));
            REFUSED(face->memalign(alignment - 1, sizes[i]));
            CHECK(face->posix_memalign(&out, alignment, sizes[i]) == ENOMEM && out == NULL);
        }
    }
    CHECK((errno = 0, face->memalign(((size_t)1 << 63) + 1, 1) == NULL) && errno == EINVAL);
    CHECK((errno = 0, face->memalign(SIZE_MAX, 1) == NULL) && errno == EINVAL);
}

/* A block of each kind: small, large, aligned, and last one that has moved. */
enum { SORTS = 12 };

__attribute__((unused)) static struct kept block_of(unsigned sort) {
    static const size_t sizes[] = {0, 100, 4096, 40000, UNIT, UNIT + 1, 2 * UNIT, 1 << 20};
    if (sort < 8) return keep(face->malloc(sizes[sort]), sizes[sort], 16, face->usable_size);
    if (sort == 8) return keep(face->memalign(4096, 100), 100, 4096, face->usable_size);
    if (sort == 9) return keep(face->memalign(2 * UNIT, 100), 100, 2 * UNIT, face->usable_size);
    if (sort == 10)
        return keep(face->memalign(1 << 20, 200000), 200000, 1 << 20, face->usable_size);
    size_t size = 1 << 20;
    void *first = face->malloc(size), *block = first, *in_the_way[64] = {0};
    for (unsigned i = 0; i < 64 && block == first; i++) {
        in_the_way[i] = face->malloc(UNIT + 1);
        CHECK((block = face->realloc(block, size += UNIT)) != NULL);
    }
    for (unsigned i = 0; i < 64; i++) face->free(in_the_way[i]);
    return keep(block, size, 16, face->usable_size);
}

__attribute__((unused)) static void still_there(const struct kept *kept) {
    CHECK(intact(kept->block, kept->size, 3) && face->usable_size(kept->block) == kept->usable);
}

/* Runs all checks on these functions. */
__attribute__((unused)) static void test_face(const struct face *tested) {
    struct kept blocks[SORTS];
    face = tested;
    for (unsigned sort = 0; sort < SORTS; sort++) blocks[sort] = block_of(sort);
    /* Free memory that the library could purge. */
    void *gap[] = {face->malloc(300000), face->malloc(300000), face->malloc(100)};
    face->free(gap[0]);
    face->free(gap[2]);
    each_absurd(gap[1], no_new_block, NULL);
    no_alignment();
    for (unsigned sort = 0; sort < SORTS; sort++) {
        each_absurd(blocks[sort].block, no_resized_block, &blocks[sort]);
        still_there(&blocks[sort]);
    }
    /* Everything works afterwards: blocks grow and are freed. */
    for (unsigned sort = 0; sort < SORTS; sort++) {
        struct kept *kept = &blocks[sort];
        still_there(kept);
        CHECK((kept->block = face->realloc(kept->block, kept->size + 200000)) != NULL);
        CHECK(intact(kept->block, kept->size, 3));
        fill(kept->block, kept->size + 200000, sort);
    }
    for (unsigned sort = 0; sort < SORTS; sort++) {
        CHECK(intact(blocks[sort].block, blocks[sort].size + 200000, sort));
        face->free(blocks[sort].block);
    }
    face->free(gap[1]);
}
