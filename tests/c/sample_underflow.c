// A write before the page of a sampled block.
// expect: fault "ebbmalloc: underflow: 0x"
// says: "has 100 bytes, and byte -1 was accessed"
// env: EBB_SAMPLE=1
#include "sample.h"

int main(void) {
    char *block = sampled(0);
    MUST_STOP((writes(block - 1), 0));
}
