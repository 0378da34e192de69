// free of memory that the program mapped itself.
// expect: abort "ebbmalloc: invalid free: 0x"
// harden: too
#include "misuse.h"
#include <sys/mman.h>

int main(void) {
    void *mapped = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapped != MAP_FAILED);
    MUST_STOP(free(mapped));
}
