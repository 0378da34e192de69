// A sized free of a sampled block with a size that was not requested.
// expect: report "ebbmalloc: wrong size: 0x"
// says: "passed to free as a block of 101 bytes; it has 100"
// env: EBB_SAMPLE=1
// env: EBB_STATS=0
#include "sample.h"

extern void free_sized(void *block, size_t size) __attribute__((weak));

int main(void) {
    MUST_STOP((free_sized(sampled(1), SAMPLED_SIZE + 1), 0));
}
