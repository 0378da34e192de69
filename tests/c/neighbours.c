// Other mappings lie where the heap would grow, or where it has unmapped memory: both stay intact.
// expect: exit 0
// ways: preload
#include "maps.h"
#include <stdlib.h>
#include <sys/mman.h>

enum { BLOCKS = 400, BEHIND = 64 };

// Maps `bytes` bytes at an address, or returns NULL if something is mapped there.
static char *map_at(unsigned long address, size_t bytes) {
    char *mapped =
        mmap((void *)address, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapped != MAP_FAILED);
    if ((unsigned long)mapped == address) return mapped;
    CHECK(munmap(mapped, bytes) == 0);
    return NULL;
}

static void *blocks[BLOCKS];

static void fill_all(size_t size) {
    for (unsigned i = 0; i < BLOCKS; i++) {
        CHECK((blocks[i] = malloc(size)) != NULL);
        fill_sample(blocks[i], size, i);
    }
}

static void free_all(size_t size) {
    for (unsigned i = 0; i < BLOCKS; i++) {
        CHECK(intact_sample(blocks[i], size, size, i));
        free(blocks[i]);
    }
}

int main(void) {
    char *first = malloc(MIB);
    memset(first, 1, MIB);
    // At the heap's end or near it, and further on.
    char *behind = map_at(mapping_of(first).end, (size_t)BEHIND * MIB);
    char *further = map_at(mapping_of(first).end + 900ul * MIB, MIB);
    if (behind) memset(behind, 7, (size_t)BEHIND * MIB);
    if (further) memset(further, 7, MIB);
    fill_all(MIB);
    char *grown = realloc(first, 100 * MIB);
    CHECK(grown != NULL && grown[MIB - 1] == 1);
    free_all(MIB);
    free(grown);
    // Others may have mapped the unmapped addresses.
    for (unsigned i = 0; i < BLOCKS; i++) {
        unsigned long address = (unsigned long)blocks[i];
        char *mapped = i % 16 == 0 ? map_at(address & ~0xffful, 4096) : NULL;
        if (mapped) memset(mapped, 9, 4096);
        blocks[i] = mapped;
    }
    char *mapped[BLOCKS];
    memcpy(mapped, blocks, sizeof blocks);
    for (size_t size = 5000; size < 3 * MIB; size *= 6) {
        fill_all(size);
        free_all(size);
    }
    for (unsigned i = 0; i < BLOCKS; i++)
        for (int k = 0; mapped[i] && k < 4096; k++) CHECK(mapped[i][k] == 9);
    for (size_t k = 0; behind && k < (size_t)BEHIND * MIB; k++) CHECK(behind[k] == 7);
    for (size_t k = 0; further && k < MIB; k++) CHECK(further[k] == 7);
    return 0;
}
