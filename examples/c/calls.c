// Calls the functions of ebbmalloc.h by their own names.
// It frees with known sizes, grows a block in place, and prints statistics.
#include <ebbmalloc.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    size_t size = 1 << 20;
    char *buffer = ebb_malloc(size);
    if (buffer == NULL) return 1;
    memset(buffer, 'x', size);

    // Shrinks in place: the rest of its memory is free again.
    if (ebb_resize(buffer, 1, size / 4)) size /= 4;
    printf("%zu bytes, at the same place\n", size);
    // Grows. If the block must move, its pages move, and nothing is copied.
    char *grown = ebb_remap(buffer, 1, 64 << 20);
    if (grown != NULL) {
        buffer = grown;
        size = 64 << 20;
    }
    printf("%zu bytes, the first is still %c\n", size, buffer[0]);
    // A free with the size saves the library a lookup.
    ebb_free_sized(buffer, size);

    char page[1 << 14];
    if (ebb_stats(EBB_STATS_TEXT, page, sizeof page) == 0) return 1;
    printf("served by ebbmalloc %s\n", strtok(page, "\n"));
    return 0;
}
