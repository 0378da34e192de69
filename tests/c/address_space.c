// A process maps little more than it uses, and unmaps what it no longer uses.
// Limits, core dumps and locked memory count mapped addresses.
// expect: exit 0
// ways: preload
// harden: too
#include "maps.h"
#include <stdlib.h>

enum { LARGE = 256, SMALL = 1 << 20 };

// Checks that mapped memory exceeds resident memory by at most an eighth and 64 MiB.
static void check_size(const char *when, long before) {
    long size = status_mib("VmSize"), resident = status_mib("VmRSS");
    long most = resident + (resident > before ? resident : before) / 8 + 64;
    fprintf(stderr, "%s: %ld MiB of addresses, %ld MiB resident\n", when, size, resident);
    CHECK(size <= most);
}

int main(void) {
    check_size("at first", 0);
    CHECK(status_mib("VmPeak") <= status_mib("VmRSS") + 64);
    char *large = malloc((size_t)LARGE * MIB);
    CHECK(large != NULL);
    memset(OPAQUE(large), 1, (size_t)LARGE * MIB);
    check_size("with a large block", 0);
    void **small = malloc(SMALL * sizeof *small);
    for (long i = 0; i < SMALL; i++) memset(OPAQUE(small[i] = malloc(200)), 1, 200);
    check_size("with many small ones", 0);
    for (long i = 0; i < SMALL; i++) free(small[i]);
    free(small);
    free(large);
    for (int i = 0; i < 20; i++) {
        void *block = malloc((size_t)(10 + i) * MIB);
        memset(OPAQUE(block), 1, (size_t)(10 + i) * MIB);
        free(block);
    }
    check_size("with nothing", 0);
    return 0;
}
