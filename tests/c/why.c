// ebb_why explains the planted case: every 100th block of 512 bytes is kept.
// expect: exit 0
// check: no free blocks are not free at once in check mode
// ways: dynamic static
#define _GNU_SOURCE
#include "check.h"
#include "ebbmalloc.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
    enum { BLOCKS = 100000, SIZE = 512 };
    static void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        CHECK((blocks[i] = malloc(SIZE)) != NULL);
        memset(blocks[i], 1, SIZE);
    }
    for (int i = 0; i < BLOCKS; i++) {
        if (i % 100) free(blocks[i]);
    }
    char *text = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);
    CHECK(memory != NULL);
    CHECK(ebb_why(memory) == 0);
    CHECK(fclose(memory) == 0);
    CHECK(strstr(text, "pinned free blocks: ") != NULL);
    CHECK(strstr(text, "is free memory pinned by 1,") != NULL);
    CHECK(strstr(text, " blocks of 512 bytes") != NULL);
    CHECK(ebb_why(NULL) != 0);
    free(text);
    return 0;
}
