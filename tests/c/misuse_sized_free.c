// A block freed as one of another size: with statistics on, each such size is checked.
// expect: abort "ebbmalloc: wrong size: 0x"
// ways: dynamic static
#include "ebbmalloc.h"
#include "misuse.h"

int main(void) {
    MUST_STOP(ebb_free_sized(malloc(OPAQUE(64)), OPAQUE(1000)));
    return 1;
}
