// realloc keeps the contents while it grows and shrinks blocks of all sizes up to 64 MiB.
// expect: exit 0
// ways: preload static
// harden: too
#include "check.h"
#include <stdlib.h>

int main(void) {
    // Up and down in steps. Small blocks are checked whole, large ones by samples.
    for (size_t factor = 5; factor <= 9; factor += 2) {
        size_t size = 1;
        char *block = realloc(NULL, size);
        CHECK(block != NULL);
        fill_sample(block, size, 3);
        while (size < 64 << 20) {
            size_t next = size * factor / 4 + 1;
            CHECK((block = realloc(block, next)) != NULL);
            CHECK(aligned_to(block, 16));
            CHECK(intact_sample(block, size, size, 3));
            size = next;
            fill_sample(block, size, 3);
        }
        while (size > 1) {
            size_t next = size * 4 / factor;
            CHECK((block = realloc(block, next)) != NULL);
            CHECK(intact_sample(block, next, size, 3));
            size = next;
            fill_sample(block, size, 3);
        }
        free(block);
    }

    // From each size to each size, with a neighbour that blocks growth in place.
    static const size_t sizes[] = {1,     15,    16,     17,      64,     100,   500,
                                   1024,  3000,  4096,   8000,    16384,  32768, 32769,
                                   65536, 65537, 200000, 1 << 20, 3 << 20};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    for (int from = 0; from < COUNT; from++)
        for (int to = 0; to < COUNT; to++) {
            char *block = malloc(sizes[from]), *neighbour = malloc(sizes[from]);
            CHECK(block != NULL && neighbour != NULL);
            fill(block, sizes[from], (unsigned)from);
            fill(neighbour, sizes[from], (unsigned)to + 100);
            CHECK((block = realloc(block, sizes[to])) != NULL);
            size_t kept = sizes[from] < sizes[to] ? sizes[from] : sizes[to];
            CHECK(intact(block, kept, (unsigned)from));
            memset(block, 0, sizes[to]);
            CHECK(intact(neighbour, sizes[from], (unsigned)to + 100));
            free(block);
            free(neighbour);
        }

    // To realloc, a block with a large alignment is an ordinary block.
    char *aligned = NULL;
    CHECK(posix_memalign((void **)&aligned, 1 << 16, 1000) == 0);
    fill(aligned, 1000, 9);
    CHECK((aligned = realloc(aligned, 300000)) != NULL);
    CHECK(intact(aligned, 1000, 9));
    CHECK((aligned = realloc(aligned, 50)) != NULL);
    CHECK(intact(aligned, 50, 9));
    free(aligned);
    return 0;
}
