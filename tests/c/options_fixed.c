// Options that a program has fixed in its code are not the environment's to change.
// expect: exit 0
// ways: dynamic static
// env: EBB_LIMIT=0
// says: "EBB_LIMIT=0 is ignored: the program has fixed this option"
#include "check.h"
#include "ebbmalloc.h"
#include <stdlib.h>

const char *ebb_options = "limit=64M,fixed";

int main(void) {
    CHECK(OPAQUE(malloc(80 << 20)) == NULL);
    free(OPAQUE(malloc(30 << 20)));
    return 0;
}
