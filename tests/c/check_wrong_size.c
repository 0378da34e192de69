// A sized free with a size that is wrong by one byte but within the same size class.
// expect: report "ebbmalloc: wrong size: 0x"
// says: "passed to free as a block of 98 bytes; it has 99"
// ways: dynamic static
// check: only
#include "ebbmalloc.h"
#include "misuse.h"

int main(void) { MUST_STOP((ebb_free_sized(malloc(OPAQUE(99)), OPAQUE(98)), 0)); }
