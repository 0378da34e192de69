// A write behind a sampled block, within its page: seen when the block is freed.
// expect: report "ebbmalloc: overflow: 0x"
// says: "has 100 bytes, and byte 100 was written (0x07); seen by free"
// says: "here, in thread"
// env: EBB_SAMPLE=1
#include "sample.h"

int main(void) {
    char *block = sampled(0);
    writes(block + SAMPLED_SIZE);
    MUST_STOP((frees(block), 0));
}
