// A write to a freed block, seen at exit at the latest, because the block is still quarantined.
// expect: abort "ebbmalloc: write after free: byte 50 of 0x"
// harden: only
#include "misuse.h"

int main(void) {
    char *block = malloc(100);
    free(block);
    OPAQUE(block)[50] = 1;
    exit(0);
}
