// Free of a block twice, after many others of its size.
// expect: abort "ebbmalloc: double free: 0x"
// harden: only
#include "misuse.h"

int main(void) {
    char *block = malloc(100);
    free(block);
    for (int i = 0; i < 100; i++) free(OPAQUE(malloc(100)));
    MUST_STOP((free(OPAQUE(block)), 0));
}
