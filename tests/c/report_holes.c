// Purged pages inside spans do not count as memory of the heap.
// mallinfo2 and the statistics agree with mincore.
// expect: exit 0
// check: no its sums count what check mode adds
// ways: dynamic static
#define _GNU_SOURCE
#include "statistic.h"
#include "xml.h"
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

enum { COUNT = 1 << 17, SIZE = 512, KEEP = 100 };

static char *blocks[COUNT];

// Reads the number behind `before` in the output of malloc_info.
static size_t told(const char *before) {
    char *text = malloc_info_text(), *at = strstr(text, before);
    CHECK(at != NULL);
    size_t number = strtoull(at + strlen(before), NULL, 10);
    free(text);
    return number;
}

// Counts the resident bytes of all units that contain a block.
static size_t resident(void) {
    enum { UNIT = 64 << 10 };
    static unsigned char pages[UNIT / 4096];
    size_t sum = 0, page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t last = 0;
    for (int i = 0; i < COUNT; i++) {
        uintptr_t unit = (uintptr_t)blocks[i] & ~(uintptr_t)(UNIT - 1);
        if (unit == last) continue;
        last = unit;
        CHECK(mincore((void *)unit, UNIT, pages) == 0);
        for (size_t at = 0; at < UNIT; at += page) sum += pages[at / page] & 1 ? page : 0;
    }
    return sum;
}

int main(void) {
    // One CPU has one cache, and malloc_trim empties it.
    cpu_set_t one_cpu;
    CPU_ZERO(&one_cpu);
    CPU_SET(sched_getcpu(), &one_cpu);
    CHECK(sched_setaffinity(0, sizeof one_cpu, &one_cpu) == 0);
    for (int i = 0; i < COUNT; i++) {
        CHECK((blocks[i] = malloc(SIZE)) != NULL);
        memset(blocks[i], 1, SIZE);
    }
    size_t full = mallinfo2().arena;
    CHECK(full >= (size_t)COUNT * SIZE);
    for (int i = 0; i < COUNT; i++)
        if (i % KEEP) free(blocks[i]);
    CHECK(malloc_trim(0) == 1);

    struct mallinfo2 info = mallinfo2();
    size_t holes = statistic("\"hole_bytes\":"), pinned = statistic("\"pinned_bytes\":"),
           there = resident();
    // A page for each kept block; some other blocks of the program lie elsewhere.
    CHECK(there < full / 4);
    CHECK(info.arena + 4096 >= there && info.arena < there + (1 << 20));
    CHECK(info.arena == info.uordblks + info.fordblks &&
          info.fordblks == pinned + statistic("\"cached_bytes\":"));
    CHECK(holes + there >= (size_t)COUNT * SIZE - (1 << 20) && holes + there < full + (1 << 20));
    // malloc_info counts the free bytes of this size and of all sizes.
    char *text = malloc_info_text(), *size = strstr(text, "to=\"512\" total=\"");
    CHECK(size != NULL);
    size_t of_size = strtoull(size + strlen("to=\"512\" total=\""), NULL, 10);
    free(text);
    CHECK(of_size > 0 && of_size <= pinned + (64 << 10));
    CHECK(told("<total type=\"rest\" count=\"") >= COUNT - COUNT / KEEP - COUNT / 64);
    // malloc_trim has unmapped what was free beside the spans, as the rest of a huge page.
    CHECK(told("<aspace type=\"total\" size=\"") >= (size_t)COUNT * SIZE);
    CHECK(told("<system type=\"current\" size=\"") < there + (4 << 20));

    // When the blocks are allocated again, the holes are gone.
    for (int i = 0; i < COUNT; i++)
        if (i % KEEP) CHECK((blocks[i] = malloc(SIZE)) != NULL);
    CHECK(statistic("\"hole_bytes\":") < (4 << 20));
    return 0;
}
