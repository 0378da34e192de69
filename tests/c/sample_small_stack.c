// A thread with an alternate stack of 8 KiB, as many programs make them, reads a sampled block that
// was freed. The report is whole.
// expect: fault "ebbmalloc: use after free: 0x"
// says: "  first freed by thread "
// env: EBB_SAMPLE=1
#include "check.h"
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { GUARD = 64 << 10, BYTES = 8 << 10 };

int main(void) {
    /* Nobody may access what lies around the stack. */
    char *start = mmap(NULL, BYTES + 2 * GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(start != MAP_FAILED && !mprotect(start + GUARD, BYTES, PROT_READ | PROT_WRITE));
    stack_t stack = {.ss_sp = start + GUARD, .ss_size = BYTES};
    CHECK(sigaltstack(&stack, NULL) == 0);
    volatile char *block = malloc(100);
    free((void *)block);
    return block[7];
}
