// A double free of a block that left the quarantine long ago.
// expect: report "ebbmalloc: double free: 0x"
// says: "first freed by thread"
// check: only
#include "misuse.h"

int main(void) {
    char *block = malloc(100), *copy = OPAQUE(block);
    free(block);
    for (int i = 0; i < 100; i++) free(OPAQUE(malloc(1 << 20)));
    MUST_STOP((free(copy), 0));
}
