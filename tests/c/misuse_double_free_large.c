// free of the same large block twice: once freed it is nobody's.
// expect: abort "ebbmalloc: invalid free: 0x"
#include "misuse.h"

int main(void) {
    char *block = malloc(3 << 20), *copy = OPAQUE(block);
    free(block);
    MUST_STOP(free(copy));
}
