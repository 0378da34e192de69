// A write to a block that was freed: seen at exit at the latest, as the block is still held back.
// expect: abort "ebbmalloc: write after free: byte 50 of 0x"
// harden: only
#include "misuse.h"

int main(void) {
    char *block = malloc(100);
    free(block);
    OPAQUE(block)[50] = 1;
    exit(0);
}
