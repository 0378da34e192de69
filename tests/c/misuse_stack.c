// free of an address on the stack.
// expect: abort "ebbmalloc: invalid free: 0x"
// harden: too
#include "misuse.h"

int main(void) {
    char block[64];
    MUST_STOP(free(OPAQUE(&block[16])));
}
