// A read behind the page of a sampled block.
// expect: fault "ebbmalloc: overflow: 0x"
// says: "has 100 bytes, and byte 112 was accessed"
// env: EBB_SAMPLE=1
#include "sample.h"

int main(void) {
    char *block = sampled(1);
    for (int i = 0; i < SAMPLED_CLASS; i++) reads(block + i);
    MUST_STOP(reads(block + SAMPLED_CLASS));
}
