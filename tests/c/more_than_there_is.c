// A request for more memory than the machine has fails at once, instead of a kill later.
// The kernel says so where its overcommit policy is the default.
// expect: exit 0
#include "check.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/sysinfo.h>

int main(void) {
    FILE *file = fopen("/proc/sys/vm/overcommit_memory", "r");
    int overcommit = 1;
    if (file != NULL && fscanf(file, "%d", &overcommit) != 1) overcommit = 1;
    if (file != NULL) fclose(file);
    if (overcommit == 1) {
        fprintf(stderr, "the kernel promises any amount here\n");
        return 77;
    }
    struct sysinfo machine;
    CHECK(sysinfo(&machine) == 0);
    size_t all = (machine.totalram + machine.totalswap) * machine.mem_unit;
    char *kept = malloc(1000);
    for (size_t size = all + (all >> 4); size < 1ul << 46; size *= 3) {
        errno = 0;
        CHECK(malloc(OPAQUE(size)) == NULL && errno == ENOMEM);
        CHECK(calloc(1, OPAQUE(size)) == NULL);
        CHECK(realloc(kept, OPAQUE(size)) == NULL);
    }
    free(kept);
    return 0;
}
