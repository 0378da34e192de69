// Timer signals interrupt allocation at any instruction, in several threads; contents stay intact.
// The handler only counts, because a handler may not allocate.
// expect: exit 0
// check: no takes minutes in check mode, whose blocks go past what it tests
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>

enum { THREADS = 4, KEPT = 200, STEPS = 1000000, WANTED = 500 };
static unsigned long ticks;

static void count(int signal) {
    (void)signal;
    __atomic_add_fetch(&ticks, 1, __ATOMIC_RELAXED);
}

static timer_t start_timer(void) {
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGALRM};
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    timer_t timer;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    struct itimerspec every = {.it_interval.tv_nsec = 50000, .it_value.tv_nsec = 50000};
    CHECK(timer_settime(timer, 0, &every, NULL) == 0);
    return timer;
}

static void *thread(void *seed) {
    static __thread uint32_t *kept[KEPT];
    uint32_t state = (uint32_t)(uintptr_t)seed;
    timer_t timer = start_timer();
    for (int step = 0;
         step < STEPS || (step < 50 * STEPS && __atomic_load_n(&ticks, __ATOMIC_RELAXED) < WANTED);
         step++) {
        uint32_t slot = random32(&state) % KEPT;
        uint32_t *block = kept[slot];
        if (block) {
            uint32_t words = block[0];
            CHECK(block[1] == (slot ^ (uint32_t)(uintptr_t)seed << 16) &&
                  block[words - 1] == ~words);
            // Overwrites the block before free: a second owner of the block would notice.
            block[1] = 0xdead;
            free(block);
        }
        uint32_t words = 3 + random32(&state) % 60;
        CHECK((kept[slot] = malloc(words * sizeof(uint32_t))) != NULL);
        kept[slot][0] = words;
        kept[slot][1] = slot ^ (uint32_t)(uintptr_t)seed << 16;
        kept[slot][words - 1] = ~words;
    }
    CHECK(timer_delete(timer) == 0);
    for (int i = 0; i < KEPT; i++) free(kept[i]);
    return NULL;
}

int main(void) {
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, thread, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    // Without signals this test would prove nothing.
    CHECK(ticks >= WANTED);
    return 0;
}
