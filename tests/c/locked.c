// Under mlockall(2) allocated memory is locked, freed memory is returned, and calloc gives zeros.
// expect: exit 0
// check: no what is freed stays for a while there
#include "maps.h"
#include <stdlib.h>
#include <sys/mman.h>

enum { SMALL = 100, SMALL_BYTES = 5000 };

static void zeros(size_t bytes) {
    char *block = calloc(1, OPAQUE(bytes));
    CHECK(block != NULL);
    for (size_t k = 0; k < bytes; k++) CHECK(block[k] == 0);
    memset(OPAQUE(block), 1, bytes);
    free(block);
}

int main(void) {
    // RLIMIT_MEMLOCK is often 8 MiB, which is enough.
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
        fprintf(stderr, "memory may not be locked here\n");
        return 77;
    }
    long before = status_mib("VmLck");
    fprintf(stderr, "%ld MiB locked at first\n", before);
    CHECK(before < 128);
    for (int i = 0; i < 200; i++) {
        char *block = malloc(MIB);
        CHECK(block != NULL);
        CHECK(mapping_of(block).end != 0 && status_mib("VmLck") >= 1);
        memset(OPAQUE(block), 1, MIB);
        char *small[SMALL];
        for (int k = 0; k < SMALL; k++)
            memset(OPAQUE(small[k] = malloc(SMALL_BYTES)), 1, SMALL_BYTES);
        free(block);
        for (int k = 0; k < SMALL; k++) free(small[k]);
        zeros(MIB + 100000);
        zeros(100000);
        zeros(SMALL_BYTES);
    }
    return 0;
}
