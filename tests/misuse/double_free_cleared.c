// A block is freed twice, and its second word is written between, where glibc marks what is free.
#include "misuse.h"

static void misuse(size_t size) {
    char *block = malloc(size), *copy = OPAQUE(block);
    free(block);
    ((uintptr_t *)copy)[1] = 0;
    free(copy);
    harvest(size);
}
