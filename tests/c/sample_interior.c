// free of an address inside a sampled block.
// expect: report "ebbmalloc: interior pointer: 0x"
// says: "sampled block of 100 bytes, allocated by thread"
// env: EBB_SAMPLE=1
#include "sample.h"

int main(void) {
    MUST_STOP((frees(sampled(1) + 16), 0));
}
