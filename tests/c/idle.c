// ebb_idle returns memory in steps, for a program without threads that has nothing else to do.
// Its result says when there is nothing more to return.
// expect: exit 0
// check: no resident memory counts what check mode holds back
// ways: dynamic static
#include "statistic.h"
#include <time.h>

enum { BLOCKS = 64 << 10, BLOCK = 1000, KEEP = 100 };

static void *blocks[BLOCKS];

int main(void) {
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(BLOCK);
        CHECK(blocks[i] != NULL);
        fill(blocks[i], BLOCK, (unsigned)i);
    }
    /* On a slow machine some memory is already purged during these calls. */
    size_t before = statistic("\"resident_bytes\":");
    for (int i = 0; i < BLOCKS; i++)
        if (i % KEEP) free(blocks[i]);
    int calls = 0;
    for (; ebb_idle(); calls++) {
        CHECK(calls < 300);
        nanosleep(&(struct timespec){.tv_nsec = 100 * 1000000L}, NULL);
    }
    CHECK(calls >= 3);
    /* The remaining blocks each occupy a page. */
    CHECK(statistic("\"resident_bytes\":") < before - 50 * 1000 * 1000);
    CHECK(statistic("\"dug_bytes\":") > 10 * 1000 * 1000 && statistic("\"dirty_bytes\":") == 0);
    for (int i = 0; i < BLOCKS; i += KEEP) {
        CHECK(intact(blocks[i], BLOCK, (unsigned)i));
        free(blocks[i]);
    }
    return 0;
}
