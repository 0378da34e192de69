// Blocks in other threads' caches at a fork are not lost: the child's trim or threads find them.
// expect: exit 0
// harden: too
#include "check.h"
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>

enum { THREADS = 20, BLOCKS = 1600, SIZES = 8 };
static pthread_barrier_t cached, end;

static void use(void) {
    static __thread void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        CHECK((blocks[i] = malloc((size_t)(100 + i % SIZES * 50))) != NULL);
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
}

static void *thread(void *unused) {
    use();
    pthread_barrier_wait(&cached);
    pthread_barrier_wait(&end);
    return unused;
}

static void *briefly(void *unused) {
    use();
    return unused;
}

static void child(void) {
    alarm(20);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, briefly, NULL) == 0);
    for (int i = 0; i < 3; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    use();
    malloc_trim(0);
    // With a cache for each thread, all are empty: only free blocks beside those in use remain.
    // Caches that threads share may belong to other threads by now, and are not trimmed then.
    const char *mode = getenv("EBB_MODE");
    if (mode != NULL && strcmp(mode, "thread") == 0) CHECK(mallinfo2().fordblks < 1 << 20);
    use();
    _exit(0);
}

int main(void) {
    CHECK(pthread_barrier_init(&cached, NULL, THREADS + 1) == 0);
    CHECK(pthread_barrier_init(&end, NULL, THREADS + 1) == 0);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, thread, NULL) == 0);
    pthread_barrier_wait(&cached);
    for (int i = 0; i < 20; i++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) child();
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    pthread_barrier_wait(&end);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    use();
    return 0;
}
