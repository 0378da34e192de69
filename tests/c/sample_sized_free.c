// A sized free of a sampled block does not put it into a cache, also on the hot path.
// expect: fault "ebbmalloc: use after free: 0x"
// says: "had 100 bytes, and byte 0 was accessed"
// env: EBB_SAMPLE=1
// env: EBB_STATS=0
#include "sample.h"

extern void free_sized(void *block, size_t size) __attribute__((weak));

int main(void) {
    char *block = sampled(1);
    // Fills the cache and empties it, on the hot path.
    void *blocks[1000];
    for (int i = 0; i < 1000; i++) CHECK((blocks[i] = malloc(SAMPLED_SIZE)) != NULL);
    for (int i = 0; i < 1000; i++) free_sized(blocks[i], SAMPLED_SIZE);
    free_sized(block, SAMPLED_SIZE);
    for (int i = 0; i < 10; i++) CHECK(OPAQUE(malloc(SAMPLED_SIZE)) != block);
    MUST_STOP(reads(block));
}
