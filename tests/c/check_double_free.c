// A double free, 10,000 frees later: the report says who allocated and who freed the block.
// expect: report "ebbmalloc: double free: 0x"
// says: "100 bytes, of size class 128, allocated by thread"
// says: "first freed by thread"
// says: "(allocates+0x"
// says: "(frees+0x"
// says: "(frees_again+0x"
// build: gcc -rdynamic
// check: only
#include "misuse.h"

__attribute__((noinline)) char *allocates(void) { return OPAQUE((char *)malloc(100)); }
__attribute__((noinline)) void frees(char *block) { free(block), OPAQUE(0); }
__attribute__((noinline)) void frees_again(char *block) { free(block), OPAQUE(0); }

int main(void) {
    char *block = allocates();
    frees(block);
    for (int i = 0; i < 10000; i++) free(OPAQUE(malloc(100)));
    MUST_STOP((frees_again(OPAQUE(block)), 0));
}
