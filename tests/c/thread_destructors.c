// Destructors of thread-specific data allocate in each round, before and after the allocator's.
// Their blocks stay intact, and thousands of such threads leave nothing behind.
// expect: exit 0
// check: no its sums count what check mode holds back
#include "check.h"
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>

enum { THREADS = 4000, KEYS = 40, ROUNDS = 4, BLOCKS = 12, SIZE = 240 };
// The allocator makes its key in its first call: a few of these come before, most after it. From
// the 33rd on, glibc allocates in pthread_setspecific.
static pthread_key_t keys[KEYS];
static __thread int rounds[KEYS];
static int destroyed;

struct node {
    struct node *next;
    unsigned char bytes[SIZE];
};

static struct node *list(unsigned seed) {
    struct node *first = NULL;
    for (int i = 0; i < BLOCKS; i++) {
        struct node *node = malloc(sizeof *node);
        CHECK(node != NULL);
        fill(node->bytes, SIZE, seed);
        node->next = first;
        first = node;
    }
    return first;
}

static void take(struct node *node, unsigned seed) {
    while (node != NULL) {
        struct node *next = node->next;
        CHECK(intact(node->bytes, SIZE, seed));
        free(node);
        node = next;
    }
}

static void destroy(void *value) {
    struct node *node = value;
    unsigned key = node->bytes[0];
    take(node, key);
    __atomic_add_fetch(&destroyed, 1, __ATOMIC_RELAXED);
    // The last value would never be destroyed, so there is none.
    if (++rounds[key] < ROUNDS) CHECK(pthread_setspecific(keys[key], list(key)) == 0);
}

static void *thread(void *unused) {
    for (unsigned key = 0; key < KEYS; key += 13)
        CHECK(pthread_setspecific(keys[key], list(key)) == 0);
    return unused;
}

int main(void) {
    for (int key = 0; key < KEYS; key++) CHECK(pthread_key_create(&keys[key], destroy) == 0);
    size_t before = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_t id;
        CHECK(pthread_create(&id, NULL, thread, NULL) == 0);
        CHECK(pthread_join(id, NULL) == 0);
        struct mallinfo2 info = mallinfo2();
        if (i == 10) before = info.uordblks + info.fordblks + info.hblkhd;
    }
    CHECK(destroyed == THREADS * (KEYS + 12) / 13 * ROUNDS);
    struct mallinfo2 info = mallinfo2();
    CHECK(info.uordblks + info.fordblks + info.hblkhd < before + (1 << 20));
    return 0;
}
