// After a burst of frees at most a quarter of the memory stays, though the program does no more.
// With one thread it goes at once; with another thread, that only waits, within seconds, by the
// scavenger, also where it was needed again several times. With LONG it is 1 GiB.
// expect: exit 0
// check: no resident memory counts what check mode holds back
// ways: dynamic static
#include "statistic.h"
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 100 << 10, LONG_BLOCKS = 512 << 10, BLOCK = 2048, KEEP = 100, BURSTS = 4 };

static void *blocks[LONG_BLOCKS];
static int count;

static void *wait_forever(void *unused) {
    sigset_t none;
    sigemptyset(&none);
    for (;;) sigsuspend(&none);
    return unused;
}

static void fill_heap(void) {
    for (int i = 0; i < count; i++) {
        blocks[i] = malloc(BLOCK);
        CHECK(blocks[i] != NULL);
        fill(blocks[i], BLOCK, (unsigned)i);
    }
}

static void wait_until_below(size_t bytes, int seconds) {
    for (int ms = 0; ms < 1000 * seconds; ms += 100) {
        if (statistic("\"resident_bytes\":") < bytes) break;
        usleep(100000);
    }
    CHECK(statistic("\"resident_bytes\":") < bytes);
}

static void burst(int seconds) {
    fill_heap();
    size_t before = statistic("\"resident_bytes\":");
    for (int i = 0; i < count; i++)
        if (i % KEEP) free(blocks[i]);
    wait_until_below(before / 4, seconds);
    for (int i = 0; i < count; i += KEEP) {
        CHECK(intact(blocks[i], BLOCK, (unsigned)i));
        free(blocks[i]);
    }
}

/* The time from the last burst to the end is the scavenger's: it must have started before. */
static void bursts(int seconds) {
    size_t before = 0;
    for (int n = 0; n < BURSTS; n++) {
        fill_heap();
        if (n == 0) before = statistic("\"resident_bytes\":");
        for (int i = 0; i < count; i++) free(blocks[i]);
    }
    wait_until_below(before / 4, seconds);
}

int main(void) {
    count = getenv("LONG") ? LONG_BLOCKS : BLOCKS;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child != 0) {
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, wait_forever, NULL) == 0);
    }
    burst(child == 0 ? 0 : 20);
    if (child != 0) bursts(20);
    return 0;
}
