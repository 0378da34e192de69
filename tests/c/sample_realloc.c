// Use of a sampled block at its old address after realloc moved it.
// expect: fault "ebbmalloc: use after free: 0x"
// says: "had 100 bytes, and byte 0 was accessed"
// env: EBB_SAMPLE=1
#include "sample.h"

int main(void) {
    char *block = sampled(1), *old = OPAQUE(block);
    fill(block, SAMPLED_SIZE, 1);
    block = realloc(block, SAMPLED_SIZE + 1);
    CHECK(block != old && intact(block, SAMPLED_SIZE, 1));
    MUST_STOP(reads(old));
}
