// Large blocks that grow move with their pages, whatever calls they went through before.
// That holds on any kernel, also after tens of thousands of moves, and free unmaps all their
// mappings.
// expect: exit 0
// check: no a realloc copies there
#include "check.h"
#include <malloc.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { KIB = 1 << 10, VECTORS = 6, ROUNDS = 9, MOVES = 20000, LIVE = 100 };

static long faults(void) {
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_minflt;
}

static int mappings(void) {
    static char text[1 << 16];
    int lines = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    CHECK(file != NULL);
    for (size_t read; (read = fread(text, 1, sizeof text, file)) > 0;)
        for (size_t i = 0; i < read; i++) lines += text[i] == '\n';
    fclose(file);
    return lines;
}

// Counts page faults while a block grows, minus those of filling it. Copying causes one a page.
static long grow_in_turn(void) {
    unsigned char *vectors[VECTORS];
    size_t sizes[VECTORS];
    long in_realloc = 0;
    for (int i = 0; i < VECTORS; i++) {
        sizes[i] = 600 * KIB;
        CHECK((vectors[i] = malloc(sizes[i])) != NULL);
        fill_sample(vectors[i], sizes[i], i);
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < VECTORS; i++) {
            size_t more = round % 3 == 1 ? sizes[i] + 192 * KIB : sizes[i] * 3 / 2;
            long before = faults();
            CHECK((vectors[i] = realloc(vectors[i], more)) != NULL);
            in_realloc += faults() - before;
            CHECK(intact_sample(vectors[i], sizes[i], sizes[i], i));
            fill_sample(vectors[i], sizes[i] = more, i);
        }
    for (int i = 0; i < VECTORS; i++) free(vectors[i]);
    return in_realloc;
}

int main(void) {
    long page = sysconf(_SC_PAGESIZE);
    free(malloc(100));
    int before = mappings();
    // 30 moves, of about 100 to 2,000 pages each. One or two blocks may be copied to free memory.
    CHECK(grow_in_turn() < VECTORS * ROUNDS * 80);
    malloc_trim(0);
    CHECK(mappings() < before + 20);

    static unsigned char *live[LIVE];
    int most = 0;
    for (int move = 0; move < MOVES; move++) {
        unsigned char **vector = &live[move % LIVE];
        free(*vector);
        CHECK((*vector = malloc(512 * KIB)) != NULL);
        void *obstacle = malloc(128 * KIB);
        (*vector)[0] = (unsigned char)move;
        CHECK((*vector = realloc(*vector, 1024 * KIB)) != NULL);
        CHECK((*vector)[0] == (unsigned char)move);
        free(obstacle);
        if (move % 1000 == 0 && mappings() > most) most = mappings();
    }
    CHECK(most < before + 10 * LIVE);
    for (int i = 0; i < LIVE; i++) free(live[i]);
    malloc_trim(0);
    CHECK(mappings() < before + 20);
    CHECK(page > 4096 || grow_in_turn() < VECTORS * ROUNDS * 80);
    return 0;
}
