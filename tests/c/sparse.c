// Of blocks of which the program touches one page, one page is resident.
// Huge pages would change that: the program lives long enough to earn them, has 16 MiB in use, and
// has filled blocks of these sizes before. Beside the sparse blocks it needs small ones.
// expect: exit 0
// check: no its quarantine keeps what was freed
// harden: too
#include "maps.h"
#include <stdlib.h>
#include <time.h>

enum { KIB = 1024, SMALL = 20000, TURNS = 6, LONG_BLOCKS = 8 };

static void sleep_ms(long ms) {
    struct timespec time = {0, ms * 1000000};
    nanosleep(&time, NULL);
}

static char *touch(char *block) {
    CHECK(block != NULL);
    OPAQUE(block)[0] = 1;
    return block;
}

static char *aligned(size_t size) {
    void *block = NULL;
    CHECK(posix_memalign(&block, 4096, size) == 0);
    return block;
}

int main(void) {
    for (int i = 0; i < SMALL; i++) touch(malloc(1000));

    // Blocks of a size each, one at a time, as a server would keep them for its clients.
    static const size_t sizes[] = {128 * KIB, 256 * KIB, 512 * KIB, 3 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        long before = status_kib("VmRSS");
        for (int block = 0; block < 99; block += 3) {
            touch(calloc(1, sizes[i]));
            touch(malloc(sizes[i]));
            touch(aligned(sizes[i]));
            for (int small = 0; small < 70; small++) touch(malloc(1000));
            sleep_ms(3);
        }
        // 99 pages, 2.2 MiB of small blocks, and the rest of a huge page.
        CHECK(status_kib("VmRSS") - before < 6 * 1024);
    }

    // Blocks that were filled, and are sparse now.
    size_t size = 64 * MIB;
    char *blocks[LONG_BLOCKS];
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < LONG_BLOCKS; i++) {
            CHECK((blocks[i] = calloc(1, size)) != NULL);
            memset(OPAQUE(blocks[i]), 1, size / LONG_BLOCKS);
        }
        for (int i = 0; i < LONG_BLOCKS; i++) free(blocks[i]);
        sleep_ms(20);
    }
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < LONG_BLOCKS; i++) blocks[i] = touch(calloc(1, size));
        for (int i = 0; i < LONG_BLOCKS; i++) free(blocks[i]);
        sleep_ms(20);
    }
    CHECK(status_kib("VmRSS") < 60 * 1024);
    return 0;
}
