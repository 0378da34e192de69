// A block is freed twice, and 20 others between.
#include "misuse.h"

enum { OTHERS = 20 };

static void misuse(size_t size) {
    char *block = malloc(size), *others[OTHERS], *copy = OPAQUE(block);
    for (int i = 0; i < OTHERS; i++) others[i] = malloc(size);
    free(block);
    for (int i = 0; i < OTHERS; i++) free(others[i]);
    free(copy);
    harvest(size);
}
