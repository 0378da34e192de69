// The profile of the peak is that of what the program holds: also where it grows into memory that
// ebbmalloc held before.
// expect: exit 0
// env: EBB_PROFILE=16K
// env: EBB_PROFILE_AT=peak
// env: EBB_PROFILE_TO=/tmp
#include "check.h"
#include <stdlib.h>

enum { BLOCKS = 30 << 10, BYTES = 1000, KEPT = 50 };

int main(void) {
    // 30 MiB of blocks, most of which are freed: each span keeps one.
    static char *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) CHECK((blocks[i] = malloc(BYTES)) != NULL);
    for (int i = 0; i < BLOCKS; i++) {
        if (i % KEPT != 0) free(blocks[i]);
    }
    CHECK(malloc(60 << 20) != NULL);
    for (int i = 0; i < BLOCKS; i++) {
        if (i % KEPT != 0) CHECK((blocks[i] = malloc(BYTES)) != NULL);
    }
    // The file is written again once the program holds a 16th more than then.
    CHECK(malloc(8 << 20) != NULL);
    char path[100];
    snprintf(path, sizeof path, "/tmp/ebb.%d.peak.heap", (int)getpid());
    FILE *file = fopen(path, "r");
    CHECK(file != NULL && unlink(path) == 0);
    int samples;
    CHECK(fscanf(file, "heap profile: %d:", &samples) == 1);
    // One in 16 KiB, some 1,900 of them.
    CHECK(samples > 1500);
    return 0;
}
