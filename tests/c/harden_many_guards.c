// More large blocks than there are gaps between mappings: later ones have their guard within the
// mapping, where the kernel can (Linux 6.13). Each kind moves, goes, and comes again.
// expect: exit 0
// harden: only
// ways: preload
#include "accessible.h"
#include <stdlib.h>
#include <sys/mman.h>

enum { BLOCKS = 12500, PAGE = 4096, SIZE = 25 * PAGE, GROWN = 27 * PAGE, GUARD_INSTALL = 102 };
static char *blocks[BLOCKS];

static int kernel_has_guards(void) {
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    return sysconf(_SC_PAGESIZE) == PAGE && madvise(page, PAGE, GUARD_INSTALL) == 0 &&
           signal_of(page) == SIGSEGV;
}

int main(void) {
    int guards = kernel_has_guards();
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            CHECK((blocks[i] = malloc(SIZE)) != NULL);
            blocks[i][0] = blocks[i][SIZE - 1] = 1;
        }
        for (int i = 0; i < BLOCKS; i += BLOCKS - 1) {
            CHECK(!guards || signal_of(blocks[i] + SIZE) == SIGSEGV);
            CHECK((blocks[i] = realloc(blocks[i], GROWN)) != NULL);
            for (int byte = SIZE; byte < GROWN; byte++) blocks[i][byte] = 2;
            CHECK(!guards || signal_of(blocks[i] + GROWN) == SIGSEGV);
        }
        for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    }
    return 0;
}
