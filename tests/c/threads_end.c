// When all threads beside the first have ended, nothing in the process purges free memory any more.
// So most of it goes back as the last one ends, though its bursts needed it again and again.
// expect: exit 0
// ways: dynamic
// check: no resident memory counts what check mode holds back
#include "statistic.h"
#include <pthread.h>
#include <sys/wait.h>

enum { THREADS = 4, BURSTS = 4, MIB = 1 << 20 };

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

static void run(const struct load *load) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, bursts, (void *)load) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(void) {
    struct load loads[] = {{3000000, 20}, {100000, 600}, {1000, 60000}};
    for (size_t nth = 0; nth < sizeof loads / sizeof *loads; nth++) {
        // A process of its own: in another one, the next load would need the memory again.
        pid_t child = fork();
        if (child == 0) {
            run(&loads[nth]);
            CHECK(statistic("\"resident_bytes\":") < 60 * MIB);
            return 0;
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    return 0;
}
