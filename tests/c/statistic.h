// Reads a single number of the statistics.
#ifndef STATISTIC_H
#define STATISTIC_H

#include "check.h"
#include "ebbmalloc.h"
#include <stdlib.h>

// Returns the number behind `name`, which includes its quotes and colon.
static size_t statistic(const char *name) {
    static char line[64 << 10];
    CHECK(ebb_stats(EBB_STATS_JSON, line, sizeof line) < sizeof line);
    const char *at = strstr(line, name);
    CHECK(at != NULL);
    return strtoull(at + strlen(name), NULL, 10);
}

#endif
