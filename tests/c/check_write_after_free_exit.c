// A write to a freed block, seen at exit. A read after free goes unseen: it gets the fill pattern.
// expect: report "ebbmalloc: write after free: 0x"
// says: "seen by exit"
// check: only
#include "misuse.h"

int main(void) {
    char *block = malloc(100000), *copy = OPAQUE(block);
    free(block);
    CHECK((unsigned char)OPAQUE(copy)[99999] == 0xdf);
    OPAQUE(copy)[99999] = 7;
    return 0;
}
