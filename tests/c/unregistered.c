// Threads unregister their rseq areas by hand, as another library might, while others continue.
// They are served, and no block is handed out twice. The kernel leaves such a thread's mm_cid at 0,
// which is the index of another thread's cache.
// expect: exit 0
// ways: preload static
#include "check.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifdef __x86_64__
enum { SIGNATURE = 0x53053053 };
#else
enum { SIGNATURE = (int)0xd428bc00 };
#endif
enum { UNREGISTER = 1, AREA_MOST = 256 };
enum { THREADS = 3, KEPT = 100, SHARED = 64, STEPS = 20000, FORKS = 5 };
// glibc has these since 2.35.
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

struct block {
    uint32_t size, seed;
    unsigned char bytes[];
};
static struct block *shared[SHARED];

static uint32_t *area(void) {
    return (uint32_t *)((char *)__builtin_thread_pointer() + __rseq_offset);
}

// glibc does not tell how many bytes it registered, 32 or more; the kernel takes only that number.
static void unregister(void) {
    long refused = -1;
    for (size_t bytes = 32; refused && bytes <= AREA_MOST; bytes++)
        refused = syscall(SYS_rseq, area(), bytes, UNREGISTER, SIGNATURE);
    CHECK(refused == 0);
    CHECK((int32_t)__atomic_load_n(area() + 1, __ATOMIC_RELAXED) == -1);
}

static struct block *make(uint32_t *state) {
    static const size_t most[] = {64, 64, 64, 1000, 5000, 100000};
    uint32_t size = random32(state) % most[random32(state) % 6];
    struct block *block;
    if (random32(state) % 4 == 0) {
        CHECK((block = calloc(1, sizeof *block + size)) != NULL);
        for (uint32_t i = 0; i < size; i += 13) CHECK(block->bytes[i] == 0);
    } else {
        CHECK((block = malloc(sizeof *block + size)) != NULL);
    }
    block->size = size, block->seed = random32(state);
    fill(block->bytes, size, block->seed);
    return block;
}

static void check(const struct block *block) {
    CHECK(intact(block->bytes, block->size, block->seed));
}

static struct block *resize(struct block *block, uint32_t size) {
    uint32_t kept = block->size < size ? block->size : size;
    CHECK((block = realloc(block, sizeof *block + size)) != NULL);
    CHECK(intact(block->bytes, kept, block->seed));
    block->size = size;
    fill(block->bytes, size, block->seed);
    return block;
}

// Overwrites the block before free: a second owner of the block would notice.
static void drop(struct block *block) {
    if (block == NULL) return;
    check(block);
    block->seed++;
    if (block->size) block->bytes[0]++;
    free(block);
}

static void work(uint32_t seed, int steps) {
    struct block *kept[KEPT] = {NULL};
    uint32_t state = seed;
    for (int step = 0; step < steps; step++) {
        struct block **own = &kept[random32(&state) % KEPT];
        if (random32(&state) % 16 == 0)
            *own = __atomic_exchange_n(&shared[random32(&state) % SHARED], *own, __ATOMIC_ACQ_REL);
        if (*own && random32(&state) % 8 == 0) {
            check(*own);
            *own = resize(*own, random32(&state) % 300);
        } else {
            drop(*own);
            *own = random32(&state) % 4 ? make(&state) : NULL;
        }
    }
    for (int i = 0; i < KEPT; i++) drop(kept[i]);
}

static void *registered(void *seed) {
    work((uint32_t)(uintptr_t)seed, STEPS);
    return NULL;
}

static void *unregistered(void *seed) {
    work((uint32_t)(uintptr_t)seed, STEPS / 10);
    unregister();
    work((uint32_t)(uintptr_t)seed + 1, STEPS);
    for (int i = 0; i < FORKS; i++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            alarm(20);
            work((uint32_t)i + 1, STEPS / 100);
            _exit(0);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    return NULL;
}

static int skip(const char *why) {
    fprintf(stderr, "%s\n", why);
    return 77;
}

int main(void) {
    if (&__rseq_size == NULL || &__rseq_offset == NULL)
        return skip("this C library registers no rseq areas");
    if (__rseq_size == 0) return skip("no rseq areas are registered here");
    pthread_t threads[2 * THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[2 * i], NULL, unregistered, (void *)(100 * i + 1)) == 0);
        CHECK(pthread_create(&threads[2 * i + 1], NULL, registered, (void *)(100 * i + 51)) == 0);
    }
    for (int i = 0; i < 2 * THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < SHARED; i++) drop(shared[i]);
    return 0;
}
