// A double free of a sampled block, with other frees between.
// expect: report "ebbmalloc: double free: 0x"
// says: "sampled block of 100 bytes, allocated by thread"
// says: "first freed by thread"
// env: EBB_SAMPLE=1
#include "sample.h"

int main(void) {
    char *block = sampled(0);
    frees(block);
    for (int i = 0; i < 50; i++) frees(sampled(1));
    MUST_STOP((frees(block), 0));
}
