// free of an address where nothing is.
// expect: abort "ebbmalloc: invalid free: 0x"
// harden: too
#include "misuse.h"

int main(void) { MUST_STOP(free((void *)OPAQUE((uintptr_t)0xdead0000beef0000u))); }
