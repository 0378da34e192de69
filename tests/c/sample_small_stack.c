// A thread with an alternate stack as small as that of Rust's threads reads a freed sampled block:
// the report is whole.
// expect: fault "ebbmalloc: use after free: 0x"
// says: "  first freed by thread "
// env: EBB_SAMPLE=1
#include "check.h"
#include <signal.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif
enum { GUARD = 64 << 10, SMALL = 8 << 10, PAGE = 4096 };

int main(void) {
    unsigned long least = getauxval(AT_MINSIGSTKSZ);
    size_t bytes = ((least > SMALL ? least : SMALL) + PAGE - 1) & -PAGE;
    /* Nobody may access what lies around the stack. */
    char *start = mmap(NULL, bytes + 2 * GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(start != MAP_FAILED && !mprotect(start + GUARD, bytes, PROT_READ | PROT_WRITE));
    stack_t stack = {.ss_sp = start + GUARD, .ss_size = bytes};
    CHECK(sigaltstack(&stack, NULL) == 0);
    volatile char *block = malloc(100);
    free((void *)block);
    return block[7];
}
