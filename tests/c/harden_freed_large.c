// Neither a freed large block nor memory behind the last page of a live one is accessible.
// expect: exit 0
// harden: only
// ways: preload
#include "accessible.h"
#include <stdlib.h>

int main(void) {
    for (size_t size = 1 << 17; size <= 16 << 20; size *= 2) {
        char *block = malloc(size);
        CHECK(signal_of(block) == 0 && signal_of(block + size - 1) == 0);
        CHECK(signal_of(block + size) == SIGSEGV);
        char *moved = realloc(block, size + 10);
        CHECK(moved && signal_of(moved + size) == 0);
        free(moved);
        CHECK(signal_of(moved) == SIGSEGV && signal_of(moved + size) == SIGSEGV);
    }
    return 0;
}
