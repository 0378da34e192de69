// mallinfo2, malloc_info and malloc_trim are exact to the byte after each allocation and free.
// expect: exit 0
// check: no its sums count what check mode adds
#define _GNU_SOURCE
#include "xml.h"
#include <sched.h>
#include <unistd.h>

// Reads a value of malloc_info for all sizes together, or for `size` if it is not 0.
static size_t xml_sum(const char *attribute, size_t size) {
    char *text = malloc_info_text();
    size_t sum = 0;
    for (char *at = text; (at = strstr(at, "<size ")) != NULL; at++) {
        char *to = strstr(at, " to=\""), *found = strstr(at, attribute), *end = strstr(at, "/>");
        CHECK(to != NULL && end != NULL && to < end);
        if (found != NULL && found < end && (size == 0 || strtoull(to + 5, NULL, 10) == size))
            sum += strtoull(found + strlen(attribute), NULL, 10);
    }
    free(text);
    return sum;
}

enum { SMALL = 4096, COUNT = 400, LARGE = 5 << 20 };

int main(void) {
    // One CPU has one cache, and malloc_trim empties it.
    cpu_set_t one_cpu;
    CPU_ZERO(&one_cpu);
    CPU_SET(sched_getcpu(), &one_cpu);
    CHECK(sched_setaffinity(0, sizeof one_cpu, &one_cpu) == 0);
    xml_sum("", 0);
    malloc_trim(0);
    struct mallinfo2 start = mallinfo2();
    CHECK(start.keepcost == 0);

    // Large blocks are exact too: each is rounded up to whole pages.
    size_t page = sysconf(_SC_PAGESIZE);
    void *one = malloc(LARGE), *two = malloc(LARGE + 1);
    CHECK(one != NULL && two != NULL);
    memset(one, 1, LARGE);
    memset(two, 1, LARGE);
    struct mallinfo2 full = mallinfo2();
    CHECK(full.hblks == start.hblks + 2);
    CHECK(full.hblkhd == start.hblkhd + 2 * LARGE + page);
    CHECK(full.uordblks == start.uordblks);
    free(one);
    struct mallinfo2 half = mallinfo2();
    CHECK(half.hblks == start.hblks + 1 && half.hblkhd == start.hblkhd + LARGE + page);
    CHECK(half.fordblks >= full.fordblks);
    free(two);
    CHECK(mallinfo2().hblks == start.hblks && mallinfo2().hblkhd == start.hblkhd);

    static void *blocks[COUNT];
    // 1.6 MiB of small blocks: freed bytes move from `uordblks` to `fordblks`.
    start = mallinfo2();
    size_t live = xml_sum(" live=\"", SMALL), all_live = xml_sum(" live=\"", 0);
    for (int i = 0; i < COUNT; i++) {
        CHECK((blocks[i] = malloc(SMALL)) != NULL);
        memset(blocks[i], 1, SMALL);
    }
    full = mallinfo2();
    CHECK(full.uordblks == start.uordblks + COUNT * SMALL);
    CHECK(full.hblkhd == start.hblkhd);
    CHECK(xml_sum(" live=\"", SMALL) == live + COUNT);
    CHECK(xml_sum(" live=\"", 0) >= all_live + COUNT);
    for (int i = 0; i < COUNT; i += 2) free(blocks[i]);
    half = mallinfo2();
    CHECK(half.uordblks == start.uordblks + COUNT / 2 * SMALL);
    CHECK(half.ordblks >= full.ordblks + COUNT / 2);
    CHECK(half.arena == half.uordblks + half.fordblks);
    CHECK(xml_sum(" live=\"", SMALL) == live + COUNT / 2);
    for (int i = 1; i < COUNT; i += 2) free(blocks[i]);
    CHECK(mallinfo2().uordblks == start.uordblks);

    // A few MiB of free runs stay resident for a while; malloc_trim purges them.
    for (int i = 0; i < COUNT / 10; i++) CHECK((blocks[i] = malloc(80000)) != NULL);
    for (int i = 0; i < COUNT / 10; i++) free(blocks[i]);
    CHECK(mallinfo2().keepcost > 0);
    CHECK(malloc_trim(0) == 1);
    struct mallinfo2 trimmed = mallinfo2();
    CHECK(trimmed.keepcost == 0 && trimmed.uordblks == start.uordblks);
    CHECK(malloc_trim(0) == 0);
    return 0;
}
