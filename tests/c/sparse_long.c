// Long blocks of which a byte in each 2 MiB is touched: huge pages make at most 64 MiB of them
// resident, however often blocks are freed, allocated again, and moved as they grow.
// expect: exit 0
// check: no its quarantine keeps what was freed
// ways: preload
#include "maps.h"
#include <stdlib.h>
#include <time.h>

enum { BLOCKS = 40, TURNS = 1500, PLACE = 2 * MIB };
// What the library, the C library and pages that were touched take beside them.
static const long BOUND_KIB = (64 + 32) << 10;

static char *blocks[BLOCKS];
static uint32_t state = 3;

static void touch(char *block, size_t size) {
    for (size_t at = MIB; at < size; at += PLACE) block[at] = 1;
}

// With time between them, since the heap asks for few huge pages at a time.
static void replace_one(void) {
    struct timespec pause = {0, 2000000};
    char **block = &blocks[random32(&state) % BLOCKS];
    size_t size = (size_t)(4 + random32(&state) % 28) * MIB;
    free(*block);
    *block = malloc(size);
    CHECK(*block != NULL);
    touch(*block, size);
    if (random32(&state) % 8 == 0) {
        char *kept = malloc(100000), *grown = realloc(*block, size + 8 * MIB);
        CHECK(kept != NULL && grown != NULL && grown[MIB] == 1);
        touch(grown, size + 8 * MIB);
        *block = grown;
        free(kept);
    }
    nanosleep(&pause, NULL);
}

int main(void) {
    for (int turn = 0; turn < TURNS; turn++) {
        replace_one();
        long kib = status_kib("VmRSS");
        if (kib > BOUND_KIB) printf("turn %d: %ld KiB\n", turn, kib);
        CHECK(kib <= BOUND_KIB);
    }
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    return 0;
}
