// A sized free of an address that is no block.
// expect: abort "ebbmalloc: invalid free: 0x"
// ways: dynamic static
#include "ebbmalloc.h"
#include "misuse.h"

int main(void) {
    static char bytes[64] __attribute__((aligned(64)));
    MUST_STOP(ebb_free_sized(OPAQUE(&bytes[0]), sizeof bytes));
    return 1;
}
