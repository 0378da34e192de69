// Stacks through a program whose segments have gaps, as lld leaves a page free in some programs.
// expect: exit 0
// ways: dynamic static
// build: gcc -O1 -Wl,-z,separate-code,-z,max-page-size=0x200000
#define _GNU_SOURCE
#include "check.h"
#include "ebbmalloc.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char __executable_start, etext;

__attribute__((noinline)) static void *inner(void) {
    void *block = malloc(1 << 20);
    CHECK(block != NULL);
    return block;
}

__attribute__((noinline)) static void *outer(void) {
    char *block = inner();
    block[0] = 1;
    return block;
}

/* Calls in this program, on the stack of the one live block of 1 MiB. */
static int calls(const char *path) {
    static char line[8192];
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    char *at = NULL;
    while (at == NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "1: 1048576 [", 12) == 0) at = strchr(line, '@');
    fclose(file);
    CHECK(at != NULL);
    int count = 0;
    for (at++; *at == ' ';) {
        unsigned long address = strtoul(at, &at, 16);
        count += address > (unsigned long)&__executable_start && address < (unsigned long)&etext;
    }
    return count;
}

int main(void) {
    char path[100];
    snprintf(path, sizeof path, "/tmp/ebb-profile-gaps-%d.heap", (int)getpid());
    CHECK(ebb_profile_start(1000) == 0);
    void *block = outer();
    CHECK(ebb_profile_write(path) == 0);
    ebb_profile_stop();
    free(block);
    int found = calls(path);
    CHECK(unlink(path) == 0);
    CHECK(found >= 3);
    return 0;
}
