// A double free of a block that is too large for the quarantine.
// expect: report "ebbmalloc: double free: 0x"
// says: "first freed by thread"
// check: only
#include "misuse.h"

int main(void) {
    char *block = malloc(50 << 20), *copy = OPAQUE(block);
    free(block);
    MUST_STOP((free(copy), 0));
}
