// A write to a freed block, seen when the program calls malloc_trim.
// expect: report "ebbmalloc: write after free: 0x"
// says: "100 bytes, and byte 40 was written (0x07); seen by malloc_trim"
// check: only
#include "misuse.h"

int main(void) {
    char *block = malloc(100), *copy = OPAQUE(block);
    free(block);
    OPAQUE(copy)[40] = 7;
    MUST_STOP(malloc_trim(0));
}
