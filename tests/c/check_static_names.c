// Reports name functions that the program does not export, and hide the engine's own frames.
// expect: report "ebbmalloc: double free: 0x"
// says: "ebbmalloc:     #0 0x"
// says: "(frees_it+0x"
// says: "(makes_it+0x"
// check: only
// build: gcc -O0
#include "check.h"
#include <stdlib.h>

__attribute__((noinline)) static void *makes_it(void) { return OPAQUE(malloc(100)); }
__attribute__((noinline)) static void frees_it(void *block) { free(OPAQUE(block)); }

int main(void) {
    void *block = makes_it();
    frees_it(block);
    frees_it(block);
    return 0;
}
