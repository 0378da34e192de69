// A block is freed twice, and so many others between that it has left every cache.
#include "misuse.h"

static void misuse(size_t size) {
    static char *blocks[2000];
    int count = many(size);
    for (int i = 0; i < count; i++) blocks[i] = malloc(size);
    char *copy = OPAQUE(blocks[count / 4]);
    for (int i = 0; i < count; i++) free(blocks[i]);
    free(copy);
    harvest(size);
}
