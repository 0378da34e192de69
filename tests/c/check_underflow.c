// A byte before a block's start, seen as damage behind the end of the previous block.
// expect: report "ebbmalloc: overflow: 0x"
// says: "seen by exit"
// check: only
#include "misuse.h"

int main(void) {
    char *blocks[8];
    for (int i = 0; i < 8; i++) CHECK((blocks[i] = malloc(100)) != NULL);
    OPAQUE(blocks[4])[-1] = 7;
    return 0;
}
