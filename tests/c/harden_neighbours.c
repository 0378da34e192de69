// Another part of the program maps pages where a guard leaves a gap, and where freed blocks wait.
// These pages stay as they are, and no block comes to lie there.
// expect: exit 0
// harden: only
// ways: preload
#define _GNU_SOURCE
#include "check.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { KIB = 1 << 10, PAGE = 4096, UNIT = 64 * KIB, LARGE = 100, SMALL = 3000, FOREIGN = 4000 };
static char *blocks[LARGE], *small[SMALL], *foreign[FOREIGN];
static int foreign_count;

// Maps the page at an address, unless something is mapped there.
static void map_at(char *address) {
    char *page = mmap(address, PAGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (page == MAP_FAILED || foreign_count == FOREIGN) return;
    CHECK(page == address);
    memset(page, foreign_count % 255 + 1, PAGE);
    foreign[foreign_count++] = page;
}

static void check_foreign(void) {
    for (int i = 0; i < foreign_count; i++)
        for (int byte = 0; byte < PAGE; byte++) CHECK(foreign[i][byte] == (char)(i % 255 + 1));
}

static int is_foreign(char *block, size_t size) {
    for (int i = 0; i < foreign_count; i++)
        if (block < foreign[i] + PAGE && foreign[i] < block + size) return 1;
    return 0;
}

// Large blocks: each leaves gaps behind its end, or, once it is freed, everywhere.
static void large(size_t size) {
    for (int i = 0; i < LARGE; i++) {
        CHECK((blocks[i] = malloc(size)) != NULL && !is_foreign(blocks[i], size));
        memset(blocks[i], 0, size);
        if (i % 2) map_at(blocks[i] + (size + PAGE - 1) / PAGE * PAGE);
    }
    for (int i = 0; i < LARGE; i += 3) {
        CHECK((blocks[i] = realloc(blocks[i], size + 2 * PAGE)) != NULL);
        memset(blocks[i], 0, size + 2 * PAGE);
    }
    for (int i = 0; i < LARGE; i++) {
        char *within = OPAQUE(blocks[i] + PAGE);
        free(blocks[i]);
        if (i % 5 == 0) map_at(within);
    }
    check_foreign();
}

int main(void) {
    for (int round = 0; round < 5; round++) {
        // Spans, whose last page is a guard.
        for (int i = 0; i < SMALL; i++) {
            CHECK((small[i] = malloc(2000)) != NULL && !is_foreign(small[i], 2000));
            memset(small[i], 0, 2000);
            map_at((char *)((uintptr_t)small[i] / UNIT * UNIT + UNIT - PAGE));
        }
        for (int i = 0; i < SMALL; i++) free(small[i]);
        check_foreign();
        large(UNIT + 1000);
        large(3 * UNIT - PAGE);
        large(40 * UNIT);
    }
    CHECK(foreign_count > 100);
    // The pages may go again.
    for (int i = 0; i < foreign_count; i++) CHECK(munmap(foreign[i], PAGE) == 0);
    foreign_count = 0;
    large(UNIT + 1000);
    return 0;
}
