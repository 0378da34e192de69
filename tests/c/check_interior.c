// Free of an address within a block: the report says which block.
// expect: report "ebbmalloc: interior pointer: 0x"
// says: "16 bytes into the block at 0x"
// says: "100 bytes, of size class 128, allocated by thread"
// check: only
#include "misuse.h"

int main(void) {
    char *block = malloc(100);
    MUST_STOP((free(OPAQUE(block + 16)), 0));
}
