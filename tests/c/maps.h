/* Helpers that read the process's own address space, /proc/self/status and /proc/self/maps, or use
   up its maps. */
#pragma once

#include "check.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { MIB = 1 << 20 };

/* Returns a value of /proc/self/status in KiB. */
__attribute__((unused)) static long status_kib(const char *name) {
    char line[256];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status != NULL);
    while (fgets(line, sizeof line, status))
        if (strncmp(line, name, strlen(name)) == 0) sscanf(line + strlen(name), ": %ld", &kib);
    fclose(status);
    CHECK(kib >= 0);
    return kib;
}

__attribute__((unused)) static long status_mib(const char *name) {
    return status_kib(name) / 1024;
}

/* Returns the mapping that contains an address. */
struct mapping {
    unsigned long start, end;
};

__attribute__((unused)) static struct mapping mapping_of(const void *address) {
    char line[512];
    struct mapping found = {0, 0};
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps)) {
        struct mapping one;
        if (sscanf(line, "%lx-%lx", &one.start, &one.end) == 2 &&
            one.start <= (unsigned long)address && (unsigned long)address < one.end)
            found = one;
    }
    fclose(maps);
    CHECK(found.end != 0);
    return found;
}

/* Makes maps up to the limit: protects every second page of a range, so each is its own map. */
__attribute__((unused)) static void use_up_maps(void) {
    enum { PAGE = 4096, MOST = 1 << 20 };
    char *range = mmap(NULL, (size_t)MOST * PAGE, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(range != MAP_FAILED);
    long maps = 0;
    for (long page = 1; page < MOST; page += 2, maps += 2)
        if (mprotect(range + page * PAGE, PAGE, PROT_READ) != 0) break;
    CHECK(errno == ENOMEM && maps > 1000);
    /* The last one, where there is one map left but not two. */
    while (mmap(NULL, PAGE, maps++ % 2 ? PROT_READ : PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                0) != MAP_FAILED) {}
    CHECK(errno == ENOMEM);
}
