/* For programs that run with EBB_SAMPLE=1: each time a cache misses, the block is sampled. */
#pragma once

#include "misuse.h"

enum { SAMPLED_SIZE = 100, SAMPLED_CLASS = 112, PAGE = 4096 };

/* Returns a sampled block of SAMPLED_SIZE bytes, which is recognized by its exact usable size.
   It lies at the end of its page, as far as its alignment allows, or at the beginning. Keeps all
   other blocks. */
__attribute__((unused, noinline)) char *sampled(int at_end) {
    for (int i = 0; i < 150; i++) {
        char *block = OPAQUE((char *)malloc(SAMPLED_SIZE));
        CHECK(block != NULL);
        if (malloc_usable_size(block) == SAMPLED_SIZE && ((uintptr_t)block % PAGE != 0) == at_end)
            return block;
    }
    check_failed(__FILE__, __LINE__, "a block was sampled");
}

/* A read that the compiler must not recognize as wrong. */
__attribute__((unused, noinline)) char reads(char *byte) {
    return OPAQUE(*OPAQUE((volatile char *)byte));
}
__attribute__((unused, noinline)) void writes(char *byte) { *OPAQUE((volatile char *)byte) = 7; }
__attribute__((unused, noinline)) void frees(char *block) { free(block), OPAQUE(0); }
