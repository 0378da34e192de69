// Any C program: it prints whether ebbmalloc serves it. README.md lists the ways to use ebbmalloc.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// From ebbmalloc.h, but weak: this program can be built and run without ebbmalloc, too.
extern size_t ebb_stats(int format, char *buffer, size_t bytes) __attribute__((weak));

int main(void) {
    char **words = malloc(1000 * sizeof *words);
    if (words == NULL) return 1;
    for (int i = 0; i < 1000; i++) words[i] = strdup("a word");

    char line[200] = "";
    if (ebb_stats != NULL) ebb_stats(1, line, sizeof line); // 1: EBB_STATS_TEXT
    if (line[0] == 0) puts("served by the C library's malloc");
    else printf("served by ebbmalloc %s\n", strtok(line, "\n"));

    for (int i = 0; i < 1000; i++) free(words[i]);
    free(words);
    return 0;
}
