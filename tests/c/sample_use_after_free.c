// A read of a freed sampled block: the report says who allocated, who freed and who read it.
// expect: fault "ebbmalloc: use after free: 0x"
// says: "had 100 bytes, and byte 5 was accessed"
// says: "#0 0x"
// says: "(reads+0x"
// says: "sampled block of 100 bytes, allocated by thread"
// says: "(allocates+0x"
// says: "first freed by thread"
// says: "(frees+0x"
// env: EBB_SAMPLE=1
// build: gcc -rdynamic
// ways: preload dynamic
#include "sample.h"

__attribute__((noinline)) char *allocates(void) { return OPAQUE(sampled(1)); }

int main(void) {
    char *block = allocates();
    frees(block);
    MUST_STOP(reads(block + 5));
}
