// A write to a freed sampled block in a statically linked program.
// expect: fault "ebbmalloc: use after free: 0x"
// says: "had 100 bytes, and byte 99 was accessed"
// says: "first freed by thread"
// env: EBB_SAMPLE=1
// ways: static
// build: gcc
// build: g++
// build: gcc -static
// build: gcc -static-pie
#include "sample.h"

int main(void) {
    char *block = sampled(0);
    frees(block);
    MUST_STOP((writes(block + 99), 0));
}
