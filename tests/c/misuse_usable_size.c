// malloc_usable_size of an address that no allocator returned.
// expect: abort "ebbmalloc: invalid free: 0x"
#include "misuse.h"

int main(void) {
    char block[64];
    MUST_STOP(malloc_usable_size(OPAQUE(&block[0])));
}
