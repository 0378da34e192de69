// When all threads beside the first have ended, nothing in the process purges free memory any more.
// So most of it goes back as the last one ends, though its bursts needed it again and again.
// expect: exit 0
// ways: dynamic
// check: no resident memory counts what check mode holds back
#include "statistic.h"
#include <pthread.h>

enum { THREADS = 4, TURNS = 2, BURSTS = 2, MIB = 1 << 20 };

struct load {
    size_t block;
    int blocks;
};

static void *bursts(void *argument) {
    const struct load *load = argument;
    char **blocks = malloc(load->blocks * sizeof *blocks);
    for (int n = 0; n < BURSTS; n++) {
        for (int i = 0; i < load->blocks; i++) {
            blocks[i] = malloc(load->block);
            CHECK(blocks[i] != NULL);
            memset(blocks[i], 1, load->block);
        }
        for (int i = 0; i < load->blocks; i++) free(blocks[i]);
    }
    free(blocks);
    return NULL;
}

int main(void) {
    struct load loads[] = {{3000000, 20}, {100000, 600}, {1000, 60000}};
    for (size_t nth = 0; nth < sizeof loads / sizeof *loads; nth++) {
        for (int turn = 0; turn < TURNS; turn++) {
            pthread_t threads[THREADS];
            for (int i = 0; i < THREADS; i++)
                CHECK(pthread_create(&threads[i], NULL, bursts, &loads[nth]) == 0);
            for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
        }
        CHECK(statistic("\"resident_bytes\":") < 60 * MIB);
    }
    return 0;
}
