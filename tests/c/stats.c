// ebb_stats: each format in full, cut to any length, or without a buffer; refuses unknown formats.
// expect: exit 0
// check: no its sums count what check mode adds
// ways: dynamic static
#include "check.h"
#include "ebbmalloc.h"
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>

static char page[64 << 10], cut[64 << 10];

// Reads the number behind `name` in the page.
static size_t number(const char *name) {
    const char *at = strstr(page, name);
    CHECK(at != NULL);
    return strtoull(at + strlen(name), NULL, 10);
}

// The text before the first number is the same in each call.
static void check_cuts(int format) {
    size_t constant = strcspn(page, "\n");
    if (constant > 30) constant = 30;
    CHECK(constant > 5);
    for (size_t room = 0; room <= constant + 1; room++) {
        memset(cut, '#', sizeof cut);
        size_t length = ebb_stats(format, room ? cut : NULL, room);
        CHECK(length > 500);
        if (room) CHECK(memcmp(cut, page, room - 1) == 0 && cut[room - 1] == 0);
        CHECK(cut[room] == '#');
    }
}

int main(void) {
    static const int formats[] = {EBB_STATS_TEXT, EBB_STATS_JSON, EBB_STATS_OPENMETRICS,
                                  EBB_STATS_PROMETHEUS};
    static const char *ends[] = {"\n", "]}\n", "\n# EOF\n", "\n"};
    void *kept = malloc(3000000);
    CHECK(kept != NULL);
    for (int i = 0; i < 4; i++) {
        errno = 77;
        size_t length = ebb_stats(formats[i], page, sizeof page);
        CHECK(length < sizeof page && strlen(page) == length && errno == 77);
        CHECK(strcmp(page + length - strlen(ends[i]), ends[i]) == 0);
        CHECK(strstr(page, "live_bytes") != NULL);
        // The length changes only with the lengths of the numbers.
        size_t again = ebb_stats(formats[i], NULL, 0);
        CHECK(again + 200 > length && again < length + 200);
        check_cuts(formats[i]);
    }
    int unknown[] = {0, -1, 5, 1 << 30};
    for (int i = 0; i < 4; i++) {
        errno = 0;
        CHECK(ebb_stats(OPAQUE(unknown[i]), page, sizeof page) == 0 && errno == EINVAL);
    }

    // The formats agree with each other and with mallinfo2, and follow each allocation and free.
    ebb_stats(EBB_STATS_JSON, page, sizeof page);
    CHECK(strncmp(page, "{\"version\":\"", 12) == 0);
    size_t large = number("\"large_bytes\":");
    CHECK(large >= 3000000 && large == mallinfo2().hblkhd);
    ebb_stats(EBB_STATS_OPENMETRICS, page, sizeof page);
    CHECK(number("\nebbmalloc_large_bytes ") == large);
    size_t spans = number("\nebbmalloc_spans ");
    static void *blocks[1000];
    for (int i = 0; i < 1000; i++) CHECK((blocks[i] = malloc(1000)) != NULL);
    ebb_stats(EBB_STATS_OPENMETRICS, page, sizeof page);
    CHECK(number("\nebbmalloc_spans ") > spans);
    CHECK(number("\nebbmalloc_class_live{block_bytes=\"1024\"} ") >= 1000);
    for (int i = 0; i < 1000; i++) free(blocks[i]);
    free(kept);
    ebb_stats(EBB_STATS_OPENMETRICS, page, sizeof page);
    CHECK(number("\nebbmalloc_large_bytes ") + 3000000 <= large);
    CHECK(number("\nebbmalloc_class_live{block_bytes=\"1024\"} ") < 100);
    return 0;
}
