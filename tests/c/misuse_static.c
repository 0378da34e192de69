// free of an address in static memory.
// expect: abort "ebbmalloc: invalid free: 0x"
#include "misuse.h"

static char block[64] __attribute__((aligned(64)));

int main(void) { MUST_STOP(free(OPAQUE(&block[0]))); }
